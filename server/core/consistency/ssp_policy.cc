#include "server/core/consistency/ssp_policy.h"

#include <optional>

#include "server/core/consistency/immediate_push.h"

namespace capstan::server {

absl::Status SspPolicy::CheckPush(const PushHead& push, const ShardVersions&) const {
  return CheckNoSlots(push);
}

PushDecision SspPolicy::Push(const PushHead& push, const ShardVersions&) {
  clocks_.RecordPush(push.rank, push.incarnation, push.iteration);
  return ApplyAtOnce();
}

PushDecision SspPolicy::Replay(const ShardRecord& record, const ShardVersions&) {
  clocks_.RecordPush(record.rank, record.incarnation, record.iteration);
  return ApplyAtOnce();
}

PullDecision SspPolicy::Pull(Iteration iteration, const ShardVersions&) const {
  const Iteration needed = Needed(iteration);
  if (!clocks_.members_known() && needed > Iteration(0)) return {.kind = PullDecision::Kind::kWait};
  const std::optional<Iteration> finished = clocks_.FinishedByAll();
  if (finished.has_value() && *finished < needed) return {.kind = PullDecision::Kind::kWait};
  return {.kind = PullDecision::Kind::kCurrent, .staleness = SeenStaleness(iteration, finished)};
}

WaitingOn SspPolicy::WaitsOn(Iteration iteration, const ShardVersions&) const {
  const Iteration needed = Needed(iteration);
  return {.iteration = Iteration(needed.value() - 1), .ranks = clocks_.Behind(needed), .slots = {}};
}

}  // namespace capstan::server
