// EpochPlan: how many epochs, iterations and samples a job has; the arithmetic of `iterations_max`.
//
// A step is an iteration under BSP (slots micro-batches) and a micro-batch under SSP and ASP. With
// backups an epoch ends with its last whole iteration: in an iteration that is cut short, the slots
// without samples would finish first.
// Thread safety: a value.
#ifndef CAPSTAN_SCHEDULER_CORE_PLAN_EPOCH_PLAN_H_
#define CAPSTAN_SCHEDULER_CORE_PLAN_EPOCH_PLAN_H_

#include <cstdint>

#include "common/types/ids.h"
#include "scheduler/core/plan/job_plan.h"

namespace capstan::scheduler {

class EpochPlan {
 public:
  // REQUIRES: an epoch has a step.
  explicit EpochPlan(const JobPlan& plan);

  int epochs() const { return epochs_; }  // The job's, or fewer if steps run out before.
  int64_t steps_total() const { return steps_total_; }
  Range Steps(Epoch epoch) const;      // Numbered through the whole job.
  int64_t Samples(Epoch epoch) const;  // Positions [0, this) of the epoch are trained.
  int64_t SamplesBefore(Epoch epoch) const { return epoch.value() * train_count_; }
  int64_t samples_total() const;

  // BSP: samples of slot `slot` in the first `iterations` iterations of an epoch.
  int64_t SlotSamples(SlotId slot, int64_t iterations) const;

 private:
  int64_t batch_size_;
  int64_t step_samples_;  // Samples of a step; an epoch's last may have fewer.
  int64_t train_count_;   // Samples that a whole epoch trains.
  int64_t slots_;
  int64_t steps_per_epoch_;
  int64_t steps_total_;
  int epochs_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLAN_EPOCH_PLAN_H_
