#include "server/core/consistency/bsp_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::server {

absl::Status BspPolicy::CheckPush(const PushHead& push, const ShardVersions& versions) const {
  if (push.iteration.value() > versions.current.value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "iteration ", push.iteration.value(), ": expected at most ", versions.current.value(),
        ", the shard's version; a gradient is made from the version of its iteration"));
  }
  return tree_.CheckNode(push.slot_begin, push.slot_end);
}

bool BspPolicy::NoteArrival(const PushHead& push) {
  if (arrived_.empty()) return false;  // If there are no backups, every update has all slots.
  Iteration& last = arrived_[static_cast<size_t>(push.slot_begin)];
  const bool is_first = last < push.iteration;
  last = std::max(last, push.iteration);
  return is_first;
}

PushDecision BspPolicy::Push(const PushHead& push, const ShardVersions& versions) {
  PushDecision decision;
  const bool is_new = NoteArrival(push);
  const bool is_past = push.iteration.value() < versions.current.value();
  if (is_past && !(is_new && Planted(PlantedBug::kCountLateSlot))) {
    decision.outcome = is_new ? PushOutcome::kLate : PushOutcome::kDuplicate;
    return decision;
  }
  const bool is_first = tree_.empty();
  decision.gradients = tree_.Arrive(push.slot_begin, push.slot_end);
  if (decision.gradients.duplicate) {
    decision.outcome = PushOutcome::kDuplicate;
    return decision;
  }
  decision.release_previous = is_first && versions.previous_readable;
  if (decision.gradients.complete) {
    decision.apply = true;
    decision.apply_gradient = decision.gradients.root;
    decision.keep_previous = true;
    decision.record = ShardRecord::Kind::kUpdate;
  }
  return decision;
}

PushDecision BspPolicy::Replay(const ShardRecord&, const ShardVersions& versions) {
  PushDecision decision;
  decision.release_previous = versions.previous_readable;
  decision.apply = true;
  decision.keep_previous = true;
  decision.record = ShardRecord::Kind::kUpdate;
  return decision;
}

PullDecision BspPolicy::Pull(Iteration iteration, const ShardVersions& versions) const {
  const int64_t behind = versions.current.value() - iteration.value();
  if (behind == 0) return {.kind = PullDecision::Kind::kCurrent};
  if (behind == 1 && Planted(PlantedBug::kReadCurrentForPrevious)) {
    return {.kind = PullDecision::Kind::kCurrent};
  }
  if (behind == 1 && versions.previous_readable) return {.kind = PullDecision::Kind::kPrevious};
  return {.kind = behind < 0 ? PullDecision::Kind::kWait : PullDecision::Kind::kPast};
}

WaitingOn BspPolicy::WaitsOn(Iteration, const ShardVersions& versions) const {
  return {
      .iteration = Iteration(versions.current.value()), .ranks = {}, .slots = tree_.MissingSlots()};
}

}  // namespace capstan::server
