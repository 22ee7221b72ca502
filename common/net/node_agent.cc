#include "common/net/node_agent.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/agent_timing.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/observability/log.h"
#include "common/process/version.h"
#include "common/status/annotate.h"
#include "common/time/duration_text.h"

namespace capstan {
namespace {

using agent_timing::kBackoffMax;
using agent_timing::kBackoffMin;
using agent_timing::kHeldMin;
using agent_timing::kRegisterTimeout;
using agent_timing::kShortLife;

NodeAgent::Options Complete(NodeAgent::Options options) {
  options.self.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  options.self.set_version(kVersion);
  return options;
}

}  // namespace

NodeAgent::NodeAgent(Options options, NodeHandler* handler)
    : options_(Complete(std::move(options))),
      handler_(handler),
      stub_(v1::Scheduler::NewStub(MakeChannel(options_.scheduler, ChannelKind::kControl))),
      tie_(stub_.get()),
      backoff_(kBackoffMin) {}

NodeAgent::~NodeAgent() { Stop(); }

void NodeAgent::Start() { thread_ = std::thread(&NodeAgent::Run, this); }

void NodeAgent::Wake() {
  absl::MutexLock lock(&mutex_);
  wake_ = true;
  if (in_flight_ != nullptr && on_wake_ == OnWake::kCancel) in_flight_->TryCancel();
}

absl::Status NodeAgent::Leave(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const int asked = ++leaves_asked_;
  wake_ = true;
  if (in_flight_ != nullptr) in_flight_->TryCancel();
  const auto answered = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return leaves_answered_ >= asked;
  };
  if (mutex_.AwaitWithTimeout(absl::Condition(&answered), timeout)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("leave: the scheduler at ", options_.scheduler,
                                                  " did not answer within ",
                                                  DurationText(timeout)));
}

void NodeAgent::LeaveWhenSafe(std::function<void()> safe) {
  absl::MutexLock lock(&mutex_);
  ++leaves_asked_;
  safe_ = std::move(safe);
  wake_ = true;
  if (in_flight_ != nullptr) in_flight_->TryCancel();
}

void NodeAgent::TellSafe() {
  std::function<void()> safe;
  {
    absl::MutexLock lock(&mutex_);
    std::swap(safe, safe_);
  }
  if (safe) safe();
}

void NodeAgent::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (in_flight_ != nullptr) in_flight_->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
}

void NodeAgent::Run() {
  while (!Stopping()) {
    switch (incarnation_.value() == 0 ? Register() : Sync()) {
      case Outcome::kGoOn:
        break;
      case Outcome::kBackOff:
        BackOff();
        break;
      case Outcome::kEnd:
        return;
    }
  }
}

bool NodeAgent::NothingToLeave() {
  absl::MutexLock lock(&mutex_);
  if (leaves_asked_ == 0) return false;
  leaves_answered_ = std::numeric_limits<int>::max();
  return true;
}

NodeAgent::Outcome NodeAgent::Register() {
  grpc::ClientContext context;
  SetDeadline(context, kRegisterTimeout);
  if (NothingToLeave()) {
    TellSafe();
    return Outcome::kEnd;
  }
  v1::RegisterRequest request = options_.self;
  if (!node_id_.empty()) request.set_name(node_id_);  // A daemon keeps the name it was given.
  handler_->FillRegistration(request);
  v1::RegisterResponse response;
  BeginCall(&context, OnWake::kGoOn);
  const absl::Status status = FromGrpcStatus(stub_->Register(&context, request, &response));
  if (EndCall() && absl::IsCancelled(status)) return Outcome::kGoOn;
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
      absl::IsUnimplemented(status)) {
    return Fatal(status);
  }
  if (absl::IsAlreadyExists(status)) return NameTaken(status);
  if (absl::IsAborted(status)) return AskForName(status);
  if (!status.ok()) return Unreachable(status);
  if (response.protocol_version() != v1::PROTOCOL_VERSION_CURRENT) {
    return Fatal(absl::FailedPreconditionError(
        absl::StrCat("the scheduler speaks protocol version ", response.protocol_version(),
                     ", this program version ", v1::PROTOCOL_VERSION_CURRENT)));
  }
  if (response.node_id().empty() || response.incarnation() == 0) {
    return Fatal(absl::InternalError("the scheduler's answer to Register holds no node id"));
  }
  Reached();
  asks_for_name_since_.reset();
  node_id_ = response.node_id();
  incarnation_ = Incarnation(response.incarnation());
  generation_seen_ = 0;
  life_began_ = absl::Now();
  sync_timeout_ = agent_timing::SyncTimeout(response);
  read_lease_ = absl::Milliseconds(response.read_lease_ms());
  tie_.Keep(node_id_, incarnation_);
  handler_->Registered(response);
  handler_->Restarted(node_id_, incarnation_);
  LogInfo({}, "registered as {}, incarnation {}, with the scheduler at {}", node_id_,
          incarnation_.value(), options_.scheduler);
  return Outcome::kGoOn;
}

NodeAgent::Outcome NodeAgent::Sync() {
  grpc::ClientContext context;
  SetDeadline(context, sync_timeout_);
  // Before the state is read: what changes after that cancels this call.
  BeginCall(&context, OnWake::kCancel);
  v1::SyncNodeRequest request;
  request.set_node_id(node_id_);
  request.set_incarnation(incarnation_.value());
  request.set_generation_seen(generation_seen_);
  int leaves_told;
  {
    absl::MutexLock lock(&mutex_);
    leaves_told = leaves_asked_;
  }
  request.set_leaving(leaves_told > 0);
  handler_->FillState(request);
  v1::SyncNodeResponse response;
  const absl::Time sent = absl::Now();
  const absl::Status status = FromGrpcStatus(stub_->SyncNode(&context, request, &response));
  if (EndCall() && absl::IsCancelled(status)) return Outcome::kGoOn;
  if (absl::IsAborted(status) || absl::IsNotFound(status)) {
    Reached();
    return EndLife(status);
  }
  if (absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status)) return Fatal(status);
  if (!status.ok()) return Unreachable(status);
  Reached();
  {
    absl::MutexLock lock(&mutex_);
    leaves_answered_ = leaves_told;
  }
  tie_.Keep(node_id_, incarnation_);
  handler_->SyncAnswered(read_lease_);
  if (response.generation() != generation_seen_) {
    generation_seen_ = response.generation();
    handler_->TakeDesired(response);
  } else if (absl::Now() - sent < kHeldMin) {
    Pause(kBackoffMin);
  }
  if (leaves_told > 0 && response.may_stop()) TellSafe();
  return Outcome::kGoOn;
}

NodeAgent::Outcome NodeAgent::Fatal(const absl::Status& status) {
  if (absl::IsUnimplemented(status)) {
    return Fatal(absl::FailedPreconditionError("it is no Capstan scheduler"));
  }
  const absl::Status fatal =
      Annotate(status, absl::StrCat("the scheduler at ", options_.scheduler, " refuses this node"));
  LogError({}, "{}", std::string(fatal.message()));
  if (options_.on_fatal) options_.on_fatal(fatal);
  return Outcome::kEnd;
}

// Whoever has the name is heard all the time, or was killed just now. A name that the scheduler had
// made up for this daemon may go to another while its lease is over.
NodeAgent::Outcome NodeAgent::NameTaken(const absl::Status& status) {
  if (!node_id_.empty() && options_.self.name().empty()) {
    LogWarning({}, "{}; asking for another name", std::string(status.message()));
    node_id_.clear();
    return Outcome::kBackOff;
  }
  const bool heard = asks_for_name_since_.has_value() &&
                     absl::Now() - *asks_for_name_since_ >= agent_timing::kNameTakenLimit;
  return heard ? Fatal(status) : AskForName(status);
}

NodeAgent::Outcome NodeAgent::AskForName(const absl::Status& status) {
  Reached();
  if (!asks_for_name_since_) {
    asks_for_name_since_ = absl::Now();
    LogInfo({}, "{}; asking for it for a moment", std::string(status.message()));
  }
  backoff_ = kBackoffMin;
  return Outcome::kBackOff;
}

NodeAgent::Outcome NodeAgent::Unreachable(const absl::Status& status) {
  if (reachable_) {
    reachable_ = false;
    unreachable_since_ = absl::Now();
    LogWarning({}, "no answer from the scheduler at {}, trying again: {}", options_.scheduler,
               status.ToString());
  }
  return Outcome::kBackOff;
}

void NodeAgent::Reached() {
  if (reachable_) return;
  reachable_ = true;
  backoff_ = kBackoffMin;
  LogInfo({}, "the scheduler at {} answers again after {}", options_.scheduler,
          DurationText(absl::Now() - unreachable_since_));
}

NodeAgent::Outcome NodeAgent::EndLife(const absl::Status& status) {
  LogWarning({}, "the scheduler ended the life of {}, incarnation {}: {}; registering again",
             node_id_, incarnation_.value(), std::string(status.message()));
  incarnation_ = Incarnation(0);
  if (absl::Now() - life_began_ >= kShortLife) {
    backoff_ = kBackoffMin;
    return Outcome::kGoOn;
  }
  return Outcome::kBackOff;
}

void NodeAgent::BeginCall(grpc::ClientContext* context, OnWake on_wake) {
  absl::MutexLock lock(&mutex_);
  wake_ = false;
  in_flight_ = context;
  on_wake_ = on_wake;
  if (stopping_) context->TryCancel();
}

bool NodeAgent::EndCall() {
  absl::MutexLock lock(&mutex_);
  in_flight_ = nullptr;
  return wake_ || stopping_;
}

bool NodeAgent::Stopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void NodeAgent::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  const auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return wake_ || stopping_; };
  mutex_.AwaitWithTimeout(absl::Condition(&woken), duration);
}

void NodeAgent::BackOff() {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&stopping_), backoff_);
  backoff_ = std::min(backoff_ * 2, kBackoffMax);
}

}  // namespace capstan
