// WorkLeases: what a job's tasks have to compute in the present phase, who computes it, and how far
// it has come. A job trains by slots (SlotWork: BSP) or by ranges of samples (SampleWork: SSP and
// ASP), and evaluates by ranges of samples in every mode; its phases need not know which.
//
//   IDLE --StartTraining--> TRAINING --trained()--> StartEvaluation --> EVALUATING --complete-->
//   StartTraining of the next epoch         any --Clear (the job goes back)--> IDLE
//
//   TRAINING, for a checkpoint:
//   RUNNING --PlanQuiet, one is due--> QUIETING --all live tasks are at rest--> IsQuiet
//      ^----------------- GoOn, or PlanQuiet: none is due any more ----/----------------/
//
// Owned by JobTraining. Pure: no clock; the time comes in. Thread safety: thread-compatible.
// Invariant: the ids of sample leases grow through all phases of the job.
#ifndef CAPSTAN_SCHEDULER_CORE_WORK_WORK_LEASES_H_
#define CAPSTAN_SCHEDULER_CORE_WORK_WORK_LEASES_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/plan/epoch_plan.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"
#include "scheduler/core/work/job_tasks.h"
#include "scheduler/core/work/sample_leases.h"

namespace capstan::scheduler {

class WorkLeases {
 public:
  virtual ~WorkLeases() = default;

  // ---- reports of tasks, in every phase
  // Errors: kInvalidArgument  a lease that was never granted, or progress outside of it.
  virtual absl::Status Validate(const TaskReport& report) const;
  // Accepts the progress of a report that Validate accepts. True: a sample lease has progressed.
  virtual bool Report(const TaskReport& report);
  void Return(Rank rank);  // The task is gone: its sample leases go back.

  // ---- evaluation, and all phases' ends
  void StartEvaluation(Range positions);
  void GrantEvaluation(absl::Span<const Rank> live);
  // The sample leases of the phase, or of the last that had some. REQUIRES: there was one.
  const SampleLeases& samples() const { return *samples_; }
  virtual void Clear() { ForgetSamples(); }  // No work is left, and none counts as done.

  // ---- training; REQUIRES StartTraining for all of these
  // `from`: only the rest of the epoch from there is to be trained; null: all of it.
  virtual void StartTraining(Epoch epoch, const ResumePoint* from) = 0;
  virtual bool trained() const = 0;
  virtual void Grant(absl::Span<const Rank> ready, const JobTasks& tasks) = 0;
  virtual bool HasWorkForMore() const = 0;  // One more task would get work.
  virtual bool HasUnfinished(Rank rank) const = 0;
  virtual void AddTo(Assignment* assignment, Rank rank) const = 0;  // Adds the task's leases.
  virtual void AddTo(ResumePoint* point, Epoch epoch) const = 0;    // REQUIRES: quiet.
  virtual int64_t StepsDone(Epoch epoch) const = 0;  // Through the whole job, as EpochPlan counts.
  virtual int64_t SamplesDone() const = 0;           // Samples of the epoch that are done.
  virtual Iteration IterationOf(const Task& task) const = 0;  // Views use it, in every phase.

  // True if every task has a clock, its own count of iterations, that holds others back: a task
  // without work must not be an active member then. False: all tasks count the iterations of the
  // job.
  virtual bool has_task_clocks() const = 0;

  // ---- quiet moments of training
  // `due`: one should come as soon as possible. `due_steps`: the count of steps at which one is
  // due.
  virtual void PlanQuiet(bool due, int64_t due_steps, double samples_per_second, Instant now) = 0;
  bool IsQuiet(const JobTasks& tasks) const;  // Nothing that was granted is under way.
  virtual bool quieting() const = 0;          // Tasks finish what they have begun.
  virtual bool paused() const = 0;            // Nothing is granted, and tasks begin no batch.
  virtual void GoOn() = 0;

  // After loading: tasks and servers may be ahead of the loaded state.
  virtual void Restored() {}

 protected:
  explicit WorkLeases(const JobPlan& plan);

  virtual bool MayBeQuiet() const = 0;                // The granted work allows it.
  virtual bool IsAtRest(const Task& task) const = 0;  // It works on nothing that it holds.
  // Grants one lease to each rank before any rank gets a second one. `paces`: by the same index.
  void GrantSamples(absl::Span<const Rank> ranks, absl::Span<const SampleLeases::Pace> paces);
  void StartSamples(SampleLeases::Use use, Range positions, int64_t scores);

  // This class's part of the durable state of a derived one, as one value, in the form of
  // scheduler/store/archive.h.
  struct Durable {
    WorkLeases& leases;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(leases.next_lease_, leases.samples_);
      CheckLoaded(archive, [this] { return leases.CheckDurable(); });
    }
  };

  const EpochPlan epochs_;
  std::optional<SampleLeases> samples_;  // The leases of the phase, or of the last that had some.

 private:
  absl::Status CheckDurable() const;  // Errors: kDataLoss  the leases are not of such a job.
  void ForgetSamples();

  static constexpr int kLeasesPerTask = 2;  // Sample leases that a task holds at most.

  const int64_t batch_size_;
  const int workers_;
  const int64_t scores_;
  LeaseId next_lease_{1};  // The first one of the next phase, unless samples_ has gone further.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORK_WORK_LEASES_H_
