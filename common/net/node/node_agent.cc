#include "common/net/node/node_agent.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/node/agent_timing.h"
#include "common/time/duration_text.h"

namespace capstan {
namespace {

NodeAgent::Options Logged(NodeAgent::Options options) {
  options.log = [](LogLevel level, const std::string& line) { LogLine(level, {}, line); };
  return options;
}

}  // namespace

NodeAgent::NodeAgent(Options options, NodeHandler* handler, const Credentials* credentials)
    : scheduler_(options.scheduler),
      stub_(v1::Scheduler::NewStub(MakeChannel(scheduler_, ChannelKind::kControl, credentials))),
      connection_(stub_.get()),
      registration_(Logged(std::move(options)), handler) {}

NodeAgent::~NodeAgent() { Stop(); }

void NodeAgent::Start() { thread_ = std::thread(&NodeAgent::Run, this); }

void NodeAgent::Wake() {
  absl::MutexLock lock(&mutex_);
  wake_ = true;
  if (in_flight_ != nullptr && on_wake_ == OnWake::kCancel) in_flight_->TryCancel();
}

void NodeAgent::BeginAnew() {
  absl::MutexLock lock(&mutex_);
  anew_ = true;
  wake_ = true;
  if (in_flight_ != nullptr && on_wake_ == OnWake::kCancel) in_flight_->TryCancel();
}

void NodeAgent::EndIncarnationIfAsked() {
  {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(anew_, false) || leaves_asked_ > 0) return;
  }
  registration_.EndIncarnation();
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
  return absl::DeadlineExceededError(absl::StrCat(
      "leave: the scheduler at ", scheduler_, " did not answer within ", DurationText(timeout)));
}

void NodeAgent::LeaveWhenSafe(std::function<void(bool safe)> left) {
  absl::MutexLock lock(&mutex_);
  ++leaves_asked_;
  left_ = std::move(left);
  wake_ = true;
  if (in_flight_ != nullptr) in_flight_->TryCancel();
}

void NodeAgent::TellLeft(bool safe) {
  std::function<void(bool)> left;
  {
    absl::MutexLock lock(&mutex_);
    std::swap(left, left_);
  }
  if (left) left(safe);
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
    EndIncarnationIfAsked();
    if (!registration_.registered() && NothingToLeave()) return TellLeft(/*safe=*/false);
    const NodeRegistration::Next next = registration_.registered() ? Sync() : Register();
    if (next.kind == NodeRegistration::Next::Kind::kEnd) return;
    if (next.kind != NodeRegistration::Next::Kind::kCall) Wait(next);
  }
}

bool NodeAgent::NothingToLeave() {
  absl::MutexLock lock(&mutex_);
  if (leaves_asked_ == 0) return false;
  leaves_answered_ = std::numeric_limits<int>::max();
  return true;
}

NodeRegistration::Next NodeAgent::Register() {
  grpc::ClientContext context;
  SetDeadline(context, agent_timing::kRegisterTimeout);
  const v1::RegisterRequest request = registration_.RegisterRequest();
  v1::RegisterResponse response;
  BeginCall(&context, OnWake::kGoOn);
  const absl::Status status = FromGrpcStatus(stub_->Register(&context, request, &response));
  if (EndCall() && absl::IsCancelled(status)) return {};
  const NodeRegistration::Next next = registration_.OnRegistered(status, response, clock_.Now());
  if (registration_.registered())
    connection_.Keep(registration_.node_id(), registration_.incarnation());
  return next;
}

NodeRegistration::Next NodeAgent::Sync() {
  grpc::ClientContext context;
  SetDeadline(context, registration_.sync_timeout());
  // The call begins before the state is read, so that a later change cancels it.
  BeginCall(&context, OnWake::kCancel);
  int leaves_told;
  {
    absl::MutexLock lock(&mutex_);
    leaves_told = leaves_asked_;
  }
  const v1::SyncNodeRequest request = registration_.SyncRequest(leaves_told > 0);
  v1::SyncNodeResponse response;
  const Instant sent = clock_.Now();
  const absl::Status status = FromGrpcStatus(stub_->SyncNode(&context, request, &response));
  if (EndCall() && absl::IsCancelled(status)) return {};
  if (status.ok()) {
    absl::MutexLock lock(&mutex_);
    leaves_answered_ = leaves_told;
  }
  const NodeRegistration::Next next = registration_.OnSynced(status, response, sent, clock_.Now());
  if (status.ok()) connection_.Keep(registration_.node_id(), registration_.incarnation());
  if (status.ok() && leaves_told > 0 && response.may_stop()) TellLeft(/*safe=*/true);
  return next;
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

void NodeAgent::Wait(const NodeRegistration::Next& next) {
  const bool wakes = next.kind == NodeRegistration::Next::Kind::kPause;
  absl::MutexLock lock(&mutex_);
  const auto over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (wakes && wake_);
  };
  mutex_.AwaitWithTimeout(absl::Condition(&over), next.pause);
}

}  // namespace capstan
