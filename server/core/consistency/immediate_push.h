// The functions that SSP and ASP share, the rules that apply a push at once.
//
// Pure functions.
#ifndef CAPSTAN_SERVER_CORE_CONSISTENCY_IMMEDIATE_PUSH_H_
#define CAPSTAN_SERVER_CORE_CONSISTENCY_IMMEDIATE_PUSH_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/core/consistency/consistency_policy.h"

namespace capstan::server {

// Errors: kInvalidArgument  the push names slots, which only BSP has.
inline absl::Status CheckNoSlots(const PushHead& push) {
  if (push.slot_begin == 0 && push.slot_end == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("slots [", push.slot_begin, ", ", push.slot_end,
                                                 "): expected [0, 0), only BSP has slots"));
}

// The payload is applied now; nothing is kept of the version before.
inline PushDecision ApplyAtOnce() {
  return {.outcome = PushOutcome::kRecorded,
          .release_previous = false,
          .gradients = {},
          .apply = true,
          .apply_gradient = kIncomingGradient,
          .keep_previous = false,
          .record = ShardRecord::Kind::kPush};
}

// How many iterations the slowest active worker is behind a reader at `iteration`; 0 if none is
// active.
inline int64_t SeenStaleness(Iteration iteration, std::optional<Iteration> finished_by_all) {
  if (!finished_by_all.has_value()) return 0;
  return std::max<int64_t>(0, iteration.value() - finished_by_all->value());
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_CONSISTENCY_IMMEDIATE_PUSH_H_
