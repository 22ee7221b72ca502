// SlotWork: the work of a BSP job. Each slot computes one micro-batch of every iteration, and its
// lease ends with the segment. The segment ends with the epoch, or, before a checkpoint, a little
// ahead, so that all slots stop at the same iteration.
//
//   segment ends with the epoch --PlanQuiet, due--> ends soon (margin) --a task is beyond it
//   already--> ends further ahead (twice the margin) ... --AtSegmentEnd--> quiet --GoOn--> epoch
//
// Owned by JobTraining, as WorkLeases. Thread safety: thread-compatible.
// Invariant: no slot is held back below an iteration that another one has done.
#ifndef CAPSTAN_SCHEDULER_CORE_WORK_SLOT_WORK_H_
#define CAPSTAN_SCHEDULER_CORE_WORK_SLOT_WORK_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/work/slot_leases.h"
#include "scheduler/core/work/work_leases.h"

namespace capstan::scheduler {

class SlotWork final : public WorkLeases {
 public:
  explicit SlotWork(const JobPlan& plan);

  absl::Status Validate(const TaskReport& report) const override;
  bool Report(const TaskReport& report) override;
  void Clear() override;
  void StartTraining(Epoch epoch, const ResumePoint* from) override;
  bool trained() const override { return slots_->complete(); }
  void Grant(absl::Span<const Rank> ready, const JobTasks& tasks) override;
  bool HasWorkForMore() const override { return true; }
  bool HasUnfinished(Rank rank) const override;
  void AddTo(Assignment* assignment, Rank rank) const override;
  void AddTo(ResumePoint* point, Epoch epoch) const override;
  int64_t StepsDone(Epoch epoch) const override;
  int64_t SamplesDone() const override;
  Iteration IterationOf(const Task& task) const override;
  bool has_task_clocks() const override { return false; }
  void PlanQuiet(bool due, int64_t due_steps, double samples_per_second, Instant now) override;
  bool quieting() const override { return margin_ > 0; }
  bool paused() const override { return false; }
  void GoOn() override;
  void Restored() override { behind_tables_ = true; }
  // There are leases for that use.
  bool Has(SampleLeases::Use use) const {
    return use == SampleLeases::Use::kTrain ? slots_.has_value()
                                            : samples_ && samples_->options().use == use;
  }

  template <typename Archive>
  void serialize(Archive& archive) {
    Durable durable{*this};
    archive(durable, slots_, margin_);
    CheckLoaded(archive, [this] { return Check(); });
  }

 private:
  // A task may have begun an iteration beyond the end before it learned of the end: then it is not
  // idle.
  bool MayBeQuiet() const override { return slots_->AtSegmentEnd(); }
  absl::Status Check() const;  // Errors: kDataLoss  the leases are not of such a job.
  bool IsAtRest(const Task& task) const override;
  Iteration DoneOf(const SlotReport& slot) const;
  Iteration done(SlotId slot) const { return slots_->done()[static_cast<size_t>(slot.value())]; }
  void EndSegmentSoon(double samples_per_second);

  const int slot_count_;
  const int backups_;
  const int64_t iteration_samples_;
  std::optional<SlotLeases> slots_;      // From the first training phase on.
  int64_t margin_ = 0;                   // Iterations in which tasks learn of a segment's end.
  std::optional<Instant> at_end_since_;  // All slots are there, and a checkpoint is due.
  bool behind_tables_ = false;           // Loaded from a record that the tables may be ahead of.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORK_SLOT_WORK_H_
