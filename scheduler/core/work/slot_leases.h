// SlotLeases: who computes which BSP slot, and how far each slot has come, in one training phase.
//
// A slot is a micro-batch of every iteration; its samples follow from the seed, and pushing one
// twice changes nothing, so a slot may move between tasks at any time: the new holder starts at the
// first iteration that is not known to be done.
//
//   unheld --Assign--> held by a task --Assign after a death or a join--> held by another
//                            \ Report(end) -> complete (not moved any more)
//
// In a job with backups, all shards have applied an iteration once all but that many slots have
// done it, and they drop the gradients of the other slots. The phase ends without the other slots,
// but a segment (before a checkpoint) does not.
// Thread safety: thread-compatible.
// Invariants: (1) begin <= done <= end for each slot, and done never decreases.
//             (2) after Assign with live tasks every incomplete slot has one holder, and the
//                 holders' shares of the incomplete slots differ by at most one.
#ifndef CAPSTAN_SCHEDULER_CORE_WORK_SLOT_LEASES_H_
#define CAPSTAN_SCHEDULER_CORE_WORK_SLOT_LEASES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

class SlotLeases {
 public:
  // Every slot of [0, slots) is to do the iterations [begin, end), and has done those below `done`.
  // REQUIRES: slots >= 1, begin <= done <= end, 0 <= backups < slots.
  SlotLeases(int slots, Iteration begin, Iteration end, Iteration done, int backups = 0);
  SlotLeases(int slots, Iteration begin, Iteration end) : SlotLeases(slots, begin, end, begin) {}
  SlotLeases() : SlotLeases(1, Iteration(0), Iteration(0)) {}  // To load into.

  // Ends all leases at `end` for now, to reach a quiet moment. It may be moved back and forth; a
  // task that is beyond it already will report that. REQUIRES: begin <= end <= the phase's end.
  void SetSegmentEnd(Iteration end) { segment_end_ = end; }
  Iteration segment_end() const { return segment_end_; }
  // Every slot has done exactly the iterations below the segment's end.
  bool AtSegmentEnd() const;
  Iteration furthest() const;  // Some slot has done every iteration below it.

  // Spreads the incomplete slots evenly over `live`, adjacent slots together. Nothing moves if
  // `live` is what it was at the last call. REQUIRES: ascending ranks, none twice.
  void Assign(absl::Span<const Rank> live);

  // Every iteration of `slot` below `done` is acknowledged. May come from any task, in any order;
  // an older figure changes nothing.
  // Errors: kInvalidArgument  no such slot; done above the phase's end.
  absl::Status Report(SlotId slot, Iteration done);
  absl::Status Validate(SlotId slot, Iteration done) const;  // Report's errors, without its effect.

  // The leases of a task, by slot, up to the segment's end. A lease's begin does not change while
  // its holder stays the same.
  std::vector<SlotLease> HeldBy(Rank rank) const;

  // All shards have applied all iterations; with backups some slots may still compute.
  bool complete() const { return incomplete_ <= backups_; }
  // All shards have applied every iteration below it.
  Iteration finished() const;
  Iteration begin() const { return begin_; }
  Iteration end() const { return end_; }
  absl::Span<const Iteration> done() const { return done_; }  // Indexed by slot.

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(begin_, end_, segment_end_, backups_, incomplete_, done_, holders_, live_);
    CheckLoaded(archive, [this] { return Check(); });
  }

 private:
  struct Holder {
    bool held = false;
    Rank rank;
    Iteration lease_begin;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(held, rank, lease_begin);
    }
  };

  absl::Status Check() const;  // Errors: kDataLoss  the invariants do not hold.

  Iteration begin_;
  Iteration end_;
  Iteration segment_end_;
  int backups_;
  int incomplete_;
  std::vector<Iteration> done_;  // Indexed by slot.
  std::vector<Holder> holders_;  // Indexed by slot.
  std::vector<Rank> live_;       // The ranks of the last Assign.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORK_SLOT_LEASES_H_
