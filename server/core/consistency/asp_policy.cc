#include "server/core/consistency/asp_policy.h"

#include "server/core/consistency/immediate_push.h"

namespace capstan::server {

absl::Status AspPolicy::CheckPush(const PushHead& push, const ShardVersions&) const {
  return CheckNoSlots(push);
}

PushDecision AspPolicy::Push(const PushHead& push, const ShardVersions&) {
  clocks_.RecordPush(push.rank, push.incarnation, push.iteration);
  return ApplyAtOnce();
}

PushDecision AspPolicy::Replay(const ShardRecord& record, const ShardVersions&) {
  clocks_.RecordPush(record.rank, record.incarnation, record.iteration);
  return ApplyAtOnce();
}

PullDecision AspPolicy::Pull(Iteration iteration, const ShardVersions&) const {
  return {.kind = PullDecision::Kind::kCurrent,
          .staleness = SeenStaleness(iteration, clocks_.FinishedByAll())};
}

WaitingOn AspPolicy::WaitsOn(Iteration iteration, const ShardVersions&) const {
  return {.iteration = iteration, .ranks = {}, .slots = {}};  // It is never called: no pull waits.
}

}  // namespace capstan::server
