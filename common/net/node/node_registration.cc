#include "common/net/node/node_registration.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/node/agent_timing.h"
#include "common/process/version.h"
#include "common/status/annotate.h"
#include "common/time/duration_text.h"

namespace capstan {
namespace {

using agent_timing::kBackoffMax;
using agent_timing::kBackoffMin;
using agent_timing::kHeldMin;
using agent_timing::kShortIncarnation;

NodeRegistration::Options Complete(NodeRegistration::Options options) {
  options.self.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  options.self.set_version(kVersion);
  return options;
}

}  // namespace

NodeRegistration::NodeRegistration(Options options, NodeHandler* handler)
    : options_(Complete(std::move(options))), handler_(handler), backoff_(kBackoffMin) {}

v1::RegisterRequest NodeRegistration::RegisterRequest() {
  v1::RegisterRequest request = options_.self;
  if (!node_id_.empty()) request.set_name(node_id_);  // A daemon keeps the name it was given.
  handler_->FillRegistration(request);
  return request;
}

NodeRegistration::Next NodeRegistration::OnRegistered(const absl::Status& status,
                                                      const v1::RegisterResponse& response,
                                                      Instant now) {
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
      absl::IsUnimplemented(status)) {
    return Fatal(status);
  }
  if (absl::IsAlreadyExists(status)) return NameTaken(status, now);
  if (absl::IsAborted(status)) return AskForName(status, now);
  if (!status.ok()) return Unreachable(status, now);
  if (response.protocol_version() != v1::PROTOCOL_VERSION_CURRENT) {
    return Fatal(absl::FailedPreconditionError(
        absl::StrCat("the scheduler speaks protocol version ", response.protocol_version(),
                     ", this program version ", v1::PROTOCOL_VERSION_CURRENT)));
  }
  if (response.node_id().empty() || response.incarnation() == 0) {
    return Fatal(absl::InternalError("the scheduler's answer to Register holds no node id"));
  }
  Reached(now);
  asks_for_name_since_.reset();
  node_id_ = response.node_id();
  incarnation_ = Incarnation(response.incarnation());
  generation_seen_ = 0;
  revision_seen_.Clear();
  incarnation_began_ = now;
  sync_timeout_ = agent_timing::SyncTimeout(response);
  read_lease_ = absl::Milliseconds(response.read_lease_ms());
  handler_->Registered(response);
  handler_->Restarted(node_id_, incarnation_);
  options_.log(LogLevel::kInfo,
               absl::StrCat("registered as ", node_id_, ", incarnation ", incarnation_.value(),
                            ", with the scheduler at ", options_.scheduler));
  return {};
}

v1::SyncNodeRequest NodeRegistration::SyncRequest(bool leaving) {
  v1::SyncNodeRequest request;
  request.set_node_id(node_id_);
  request.set_incarnation(incarnation_.value());
  request.set_generation_seen(generation_seen_);
  request.set_leaving(leaving);
  if (revision_seen_.scheduler() != 0) *request.mutable_revision_seen() = revision_seen_;
  handler_->FillState(request);
  if (options_.add_counts) options_.add_counts(request);
  return request;
}

NodeRegistration::Next NodeRegistration::OnSynced(const absl::Status& status,
                                                  const v1::SyncNodeResponse& response,
                                                  Instant sent, Instant now) {
  if (absl::IsAborted(status) || absl::IsNotFound(status)) return IncarnationEnded(status, now);
  if (absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status)) return Fatal(status);
  if (!status.ok()) return Unreachable(status, now);
  Reached(now);
  revision_seen_ = response.revision();
  handler_->SyncAnswered(read_lease_, revision_seen_);
  if (response.generation() != generation_seen_) {
    generation_seen_ = response.generation();
    handler_->TakeDesired(response);
  } else if (now - sent < kHeldMin) {
    return {.kind = Next::Kind::kPause, .pause = kBackoffMin};
  }
  return {};
}

NodeRegistration::Next NodeRegistration::BackOff() {
  const absl::Duration pause = backoff_;
  backoff_ = std::min(backoff_ * 2, kBackoffMax);
  return {.kind = Next::Kind::kBackOff, .pause = pause};
}

NodeRegistration::Next NodeRegistration::Fatal(const absl::Status& status) {
  if (absl::IsUnimplemented(status)) {
    return Fatal(absl::FailedPreconditionError("it is no Capstan scheduler"));
  }
  const absl::Status fatal =
      Annotate(status, absl::StrCat("the scheduler at ", options_.scheduler, " refuses this node"));
  options_.log(LogLevel::kError, std::string(fatal.message()));
  if (options_.on_fatal) options_.on_fatal(fatal);
  return {.kind = Next::Kind::kEnd};
}

// Another daemon has the name: it is alive, or it was killed just now. So this one asks for the
// name again for a while. A name that the scheduler had made up for this daemon may go to another
// while its lease is over; then this one asks for a new name.
NodeRegistration::Next NodeRegistration::NameTaken(const absl::Status& status, Instant now) {
  if (!node_id_.empty() && options_.self.name().empty()) {
    options_.log(LogLevel::kWarning, absl::StrCat(status.message(), "; asking for another name"));
    node_id_.clear();
    return BackOff();
  }
  const bool heard = asks_for_name_since_.has_value() &&
                     now - *asks_for_name_since_ >= agent_timing::kNameTakenLimit;
  return heard ? Fatal(status) : AskForName(status, now);
}

NodeRegistration::Next NodeRegistration::AskForName(const absl::Status& status, Instant now) {
  Reached(now);
  if (!asks_for_name_since_) {
    asks_for_name_since_ = now;
    options_.log(LogLevel::kInfo, absl::StrCat(status.message(), "; asking for it for a moment"));
  }
  backoff_ = kBackoffMin;
  return BackOff();
}

NodeRegistration::Next NodeRegistration::Unreachable(const absl::Status& status, Instant now) {
  if (!unreachable_since_) {
    unreachable_since_ = now;
    options_.log(LogLevel::kWarning,
                 absl::StrCat("no answer from the scheduler at ", options_.scheduler,
                              ", trying again: ", status.ToString()));
  }
  return BackOff();
}

void NodeRegistration::Reached(Instant now) {
  if (!unreachable_since_) return;
  backoff_ = kBackoffMin;
  options_.log(LogLevel::kInfo,
               absl::StrCat("the scheduler at ", options_.scheduler, " answers again after ",
                            DurationText(now - *unreachable_since_)));
  unreachable_since_.reset();
}

void NodeRegistration::EndIncarnation() {
  if (!registered()) return;
  options_.log(LogLevel::kInfo, absl::StrCat(node_id_, " ends incarnation ", incarnation_.value(),
                                             " and registers again"));
  incarnation_ = Incarnation(0);
}

NodeRegistration::Next NodeRegistration::IncarnationEnded(const absl::Status& status, Instant now) {
  Reached(now);
  options_.log(LogLevel::kWarning,
               absl::StrCat("the scheduler ended the registration of ", node_id_, ", incarnation ",
                            incarnation_.value(), ": ", status.message(), "; registering again"));
  incarnation_ = Incarnation(0);
  if (now - incarnation_began_ < kShortIncarnation) return BackOff();
  backoff_ = kBackoffMin;
  return {};
}

}  // namespace capstan
