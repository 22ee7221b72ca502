#include "scheduler/core/nodes/isolation.h"

#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

Isolation::Change Isolation::Observe(const Nodes& nodes, Instant now) {
  const bool all_silent = nodes.alive >= 2 && nodes.silent == nodes.alive;
  const bool most_silent =
      all_silent || (nodes.silent >= options_.silent_min && 2 * nodes.silent > nodes.alive);
  if (!holds()) {
    if (!nodes.expired || !most_silent) return Change::kNone;
    if (Planted(PlantedBug::kExpireWhileIsolated)) return Change::kNone;
    since_ = now;
  } else if (!most_silent) {
    since_.reset();
    some_heard_since_.reset();
    return Change::kEnded;
  }
  if (all_silent) {
    some_heard_since_.reset();
  } else if (!some_heard_since_) {
    some_heard_since_ = now;
  } else if (now >= *some_heard_since_ + options_.partial_limit) {
    since_.reset();
    some_heard_since_.reset();
    return Change::kGivenUp;
  }
  return since_ == now ? Change::kBegan : Change::kNone;
}

}  // namespace capstan::scheduler
