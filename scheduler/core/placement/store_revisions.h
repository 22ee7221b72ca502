// StoreRevisions: counts what this scheduler and those before it have written to the store, to
// detect a store that was restored from a backup: a node or task that has heard of a revision that
// is not in the store has seen decisions that are lost.
//
//                       Advance(): a step is written          copied here
//   scheduler 7 --- 7:1 --- 7:2 --- 7:3 ------------------------- 7:4 --- 7:5 (killed)
//                                     \ put back
//                                      scheduler 9 --- 9:1 ...  Has(7:3), not Has(7:4)
//
// The store lists only the schedulers that reported a revision to a node or a task (Tell), so one
// that starts in vain again and again does not fill the list.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_PLACEMENT_STORE_REVISIONS_H_
#define CAPSTAN_SCHEDULER_CORE_PLACEMENT_STORE_REVISIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/types/store_revision.h"

namespace capstan::scheduler {

class StoreRevisions {
 public:
  // Most schedulers that are remembered. Revisions of earlier ones count as lost.
  static constexpr size_t kSchedulersMax = 100;

  // `scheduler`: the number of this process, unique and not 0.
  explicit StoreRevisions(uint64_t scheduler) : current_{.scheduler = scheduler} {}

  // Call after loading. Continues this process's own count, if the store has it.
  void Begin();
  void Advance();  // A step is written.
  // A node or a task is going to hear of the current revision, or of later ones. True: the store
  // does not have this scheduler yet, so this step must be written.
  bool Tell();
  const StoreRevision& current() const { return current_; }
  bool Has(const StoreRevision& seen) const;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(latest_);
  }

 private:
  bool IsTold() const;

  StoreRevision current_;              // The newest one of this scheduler.
  std::vector<StoreRevision> latest_;  // The newest one of each that told any, oldest first.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_STORE_REVISIONS_H_
