// ResumePoint: where a job's training stands at a quiet moment, beside its tables: enough to go on
// from there with new tasks.
// Thread safety: values, and a function of its arguments.
#ifndef CAPSTAN_SCHEDULER_CORE_PLAN_RESUME_POINT_H_
#define CAPSTAN_SCHEDULER_CORE_PLAN_RESUME_POINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/job_metrics.h"
#include "scheduler/core/plan/job_plan.h"

namespace capstan::scheduler {

struct ResumePoint {
  // In this epoch, positions or the evaluation remain. Beyond the last epoch: only the export
  // remains.
  Epoch epoch;
  // BSP: every shard is at this version, and every slot has done the iterations below it. SSP, ASP:
  // the steps that the job has done.
  Iteration iteration;
  // SSP, ASP: the positions of the epoch that are not trained, disjoint and ascending, and the
  // number of its batches that are.
  std::vector<Range> untrained;
  int64_t batches = 0;
  std::vector<EpochResult> results;  // The results of the epochs before.
  absl::Duration epoch_time;         // Spent on this epoch so far.
  JobMetrics metrics;
  // The shards have seen these, and refuse older ones.
  Generation membership;
  Incarnation incarnation;  // The highest one of a task.
  // How long the job had trained; counted only where rows have a time to live.
  absl::Duration trained;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(epoch, iteration, untrained, batches, results, epoch_time, metrics, membership,
            incarnation);
    archive.Appended(trained);
  }
};

// Checks that a job of this plan can begin at a point that was read from a disk. A checksum finds
// damage, but not a forged file.
// Errors: kDataLoss  names the field, its value and the expected value.
absl::Status CheckResumePoint(const ResumePoint& at, const JobPlan& plan);

// A complete checkpoint with which a job can begin, or to which it can go back.
struct RestoreFrom {
  std::string folder;  // The folder of one complete checkpoint.
  ResumePoint at;
  std::vector<ShardRange> shards = {};  // The checkpoint's shards, if it is another job's.
  CheckpointId id = {};
  CheckpointId rests_on = {};  // The lowest checkpoint whose files it needs.
  // Another job's: the folder of that job's checkpoints, by its one name (folders/). It stays while
  // this job can go back to it. Empty: the job's own.
  std::string pinned_in = {};
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(folder, at, shards, id, rests_on, pinned_in);
    CheckLoaded(archive, [this] {
      absl::Status status = CheckShardRanges(shards);
      status.Update(CheckCount("checkpoint", id.value()));
      return status;
    });
  }
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLAN_RESUME_POINT_H_
