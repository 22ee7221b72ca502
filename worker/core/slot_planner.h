// SlotPlanner: decides which BSP micro-batch a worker task computes next.
//
// The scheduler leases slots: "compute slot m of every iteration in [begin, end)". A task that
// takes over a dead worker's slot starts behind the others, so each slot has its own next iteration
// and the smallest goes first. Pure. Thread safety: thread-compatible.
// Invariants: (1) done <= next for every slot; both may be beyond the end (Assign, SkipTo);
//             (2) next and done of a held slot never decrease.
#ifndef CAPSTAN_WORKER_CORE_SLOT_PLANNER_H_
#define CAPSTAN_WORKER_CORE_SLOT_PLANNER_H_

#include <map>
#include <optional>
#include <vector>

#include "common/types/ids.h"

namespace capstan::worker {

struct SlotLease {
  SlotId slot;
  Iteration begin;
  Iteration end;
};

struct SlotProgress {
  SlotId slot;
  // Every iteration below it is acknowledged. May be beyond the lease's end (Assign, SkipTo).
  Iteration done;
};

// A micro-batch to compute.
struct SlotWork {
  Iteration iteration;
  SlotId slot;
  friend bool operator==(const SlotWork&, const SlotWork&) = default;
};

class SlotPlanner {
 public:
  // Replaces the leases. A slot that is held already keeps its progress, even beyond the lease's
  // end: the scheduler ends leases early for a checkpoint, and must learn which tasks were further.
  void Assign(const std::vector<SlotLease>& leases);

  // The next micro-batch to start: that of the lowest iteration, and of the lowest slot in it.
  // Nothing if all are started.
  std::optional<SlotWork> Next() const;

  // The next `count` micro-batches in order, to decode them ahead of use.
  std::vector<SlotWork> Upcoming(int count) const;

  // `work` has been handed to the session: Next() moves on.
  void Started(const SlotWork& work);

  // `work` has been acknowledged by every shard.
  void Done(const SlotWork& work);

  // The servers hold nothing older than `oldest`: other tasks have completed earlier iterations.
  void SkipTo(Iteration oldest);

  // True if nothing is left to start or to be acknowledged, in the leases or beyond them.
  bool Finished() const;

  std::vector<SlotProgress> Progress() const;  // Ordered by slot.

 private:
  struct Slot {
    Iteration next, done, end;
  };
  std::map<SlotId, Slot> slots_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_SLOT_PLANNER_H_
