// SampleWork: the work of an SSP or ASP job: ranges of an epoch's samples, each leased to one task,
// and larger for a fast task. For a checkpoint nothing more is granted, and tasks finish their
// current batch and keep the rest of their leases.
// At own pace (JobPlan) each task gets one lease, for the run of its rank.
//
//   GRANTING --PlanQuiet, due--> PAUSED --PlanQuiet, not due; GoOn--> GRANTING
//
// Owned by JobTraining, as WorkLeases. Thread safety: thread-compatible.
// Invariant: nothing is granted while paused.
#ifndef CAPSTAN_SCHEDULER_CORE_WORK_SAMPLE_WORK_H_
#define CAPSTAN_SCHEDULER_CORE_WORK_SAMPLE_WORK_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/work/work_leases.h"

namespace capstan::scheduler {

class SampleWork final : public WorkLeases {
 public:
  // `lease_ahead`: the longest time that one lease lasts at the task's pace.
  SampleWork(const JobPlan& plan, absl::Duration lease_ahead)
      : WorkLeases(plan), lease_ahead_(lease_ahead), own_pace_(plan.own_pace) {}

  void Clear() override;
  void StartTraining(Epoch epoch, const ResumePoint* from) override;
  bool trained() const override { return samples_->complete(); }
  void Grant(absl::Span<const Rank> ready, const JobTasks& tasks) override;
  bool HasWorkForMore() const override { return samples_->has_ungranted(); }
  bool HasUnfinished(Rank rank) const override { return samples_->HeldCount(rank) > 0; }
  void AddTo(Assignment* assignment, Rank rank) const override;
  void AddTo(ResumePoint* point, Epoch epoch) const override;
  int64_t StepsDone(Epoch epoch) const override;
  int64_t SamplesDone() const override { return samples_->positions_done(); }
  Iteration IterationOf(const Task& task) const override { return task.iterations; }
  bool has_task_clocks() const override { return true; }
  void PlanQuiet(bool due, int64_t due_steps, double samples_per_second, Instant now) override;
  bool quieting() const override { return paused_; }
  bool paused() const override { return paused_; }
  void GoOn() override { paused_ = false; }
  // There are leases for that use.
  bool Has(SampleLeases::Use use) const { return samples_ && samples_->options().use == use; }

  template <typename Archive>
  void serialize(Archive& archive) {
    Durable durable{*this};
    archive(durable, paused_);
  }

 private:
  bool MayBeQuiet() const override { return paused_; }
  bool IsAtRest(const Task& task) const override;
  // One entry for each rank. All are unknown until the pace of every rank is known.
  std::vector<SampleLeases::Pace> PacesOf(absl::Span<const Rank> ranks,
                                          const JobTasks& tasks) const;

  const absl::Duration lease_ahead_;
  const bool own_pace_;
  bool paused_ = false;  // Paused for a checkpoint.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORK_SAMPLE_WORK_H_
