// CompleteCheckpoints: the complete checkpoints of a job, what each rests on, and which ones stay.
//
//   ABSENT --Add: its manifest is on the disk--> STAYS --Add of newer ones, and nothing that stays
//   rests on it--> ABSENT
//   STAYS --KeepNewest--> KEPT --KeepNewest of another one--> STAYS
//   STAYS, KEPT --Forget: it cannot be read--> ABSENT
//
// Chains. For a sparse table, servers may write only the changes since the newest complete
// checkpoint, the base; then the new checkpoint rests on the base and on all that the base rests
// on. A chain ends, and the next checkpoint is written in full, when the chain has kChainMax
// checkpoints, when its increments together are more than half of its first checkpoint, and when a
// part of it may be damaged. The newest `keep` checkpoints of a job stay, with all that they rest
// on; those of one chain count as one, so that damage to a file leaves another chain to go back to.
// Owned by Checkpoints. Thread safety: thread-compatible.
// Invariant: the checkpoints that one rests on stay as long as it does, unless they were forgotten.
#ifndef CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_COMPLETE_CHECKPOINTS_H_
#define CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_COMPLETE_CHECKPOINTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

// The checkpoints that the shell may remove from a job's folder, when it is durable that a newer
// one is complete: all that are older than the newest of `staying` and not named here.
struct CheckpointRemoval {
  std::string job_folder;
  CheckpointId floor;                 // Checkpoints up to this id are not the job's.
  std::vector<CheckpointId> staying;  // Includes all that they rest on. Empty: remove nothing.
  // Ranges from a first to a last id: a job that has not ended can go back to the last.
  std::vector<std::pair<CheckpointId, CheckpointId>> pinned = {};
};

class CompleteCheckpoints {
 public:
  static constexpr int kChainMax = 8;  // Checkpoints that a restore may have to read.

  explicit CompleteCheckpoints(const JobPlan& plan);

  const std::vector<RestoreFrom>& all() const { return complete_; }  // Oldest first.

  // ---- the newest
  // `rests`: whether it rests on the newest one before; then `added_bytes` of its `bytes` are
  // increments.
  void Add(RestoreFrom newest, bool rests, int64_t bytes, int64_t added_bytes);
  // The base of the next one; 0: the next one is written in full.
  CheckpointId NextBase() const;
  void EndChain() { chain_ = {}; }  // The base may be damaged.

  // ---- which ones stay
  void Forget(CheckpointId id);  // It cannot be read.
  // The newest stays, with all that it rests on, until another is kept.
  void KeepNewest();
  const RestoreFrom* kept() const;    // Null: none.
  CheckpointRemoval Removal() const;  // `pinned` is empty: JobTable fills it in.

  // ---- durable state, in the form of scheduler/store/archive.h
  uint64_t changes() const { return changes_; }  // KeepNewest's changes, which must be durable.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(complete_, chain_, kept_best_);
  }

 private:
  // The chain of the newest one. Length 0: the next one is written in full.
  struct Chain {
    int length = 0;
    int64_t first_bytes = 0;
    int64_t added_bytes = 0;  // The bytes of all increments together.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(length, first_bytes, added_bytes);
      CheckLoaded(archive, [this] {
        absl::Status status = CheckRange("length of a chain", length, 0, kChainMax);
        status.Update(CheckCount("bytes of a chain", first_bytes, kCounterMax / 4));
        status.Update(CheckCount("bytes of increments", added_bytes, kCounterMax / 4));
        return status;
      });
    }
  };

  std::vector<CheckpointId> StayingWith(const RestoreFrom& newest) const;

  const int keep_;
  const bool incremental_;
  const std::string folder_;
  const CheckpointId floor_;
  std::vector<RestoreFrom> complete_;
  Chain chain_;
  CheckpointId kept_best_;
  uint64_t changes_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_COMPLETE_CHECKPOINTS_H_
