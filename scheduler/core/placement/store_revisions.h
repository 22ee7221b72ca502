// StoreRevisions: how much this scheduler and those before it have written to the store, so that a
// store that was put back from a backup is noticed: whoever has heard of a revision that is not in
// it has seen decisions that are lost.
//
//                       Advance(): a step is written          copied here
//   scheduler 7 --- 7:1 --- 7:2 --- 7:3 ------------------------- 7:4 --- 7:5 (killed)
//                                     \ put back
//                                      scheduler 9 --- 9:1 ...  Has(7:3), not Has(7:4)
//
// The store has only those schedulers that told somebody a revision (Tell). Others need not be
// known, however often one starts in vain.
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
  // So many schedulers are remembered; what was heard of one before counts as lost.
  static constexpr size_t kSchedulersMax = 100;

  // `scheduler`: of this process, of no other one, and not 0.
  explicit StoreRevisions(uint64_t scheduler) : current_{.scheduler = scheduler} {}

  // After loading what an earlier scheduler has left.
  void Begin();
  void Advance();
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

  StoreRevision current_;              // The last one of this scheduler.
  std::vector<StoreRevision> latest_;  // The last one of each scheduler that told any, by age.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_STORE_REVISIONS_H_
