#include "scheduler/core/work/slot_work.h"

#include <algorithm>

#include "common/status/status_macros.h"

namespace capstan::scheduler {
namespace {

// A new segment's end lies this far ahead. A report, its commit and its answer take less time.
constexpr absl::Duration kSegmentNotice = absl::Seconds(1);
constexpr int64_t kSegmentMarginMin = 2;

}  // namespace

SlotWork::SlotWork(const JobPlan& plan)
    : WorkLeases(plan),
      slot_count_(plan.consistency.slots),
      backups_(plan.consistency.backups),
      iteration_samples_(plan.batch_size * plan.consistency.slots) {}

absl::Status SlotWork::Check() const {
  // It doubles with each segment that ends too soon.
  absl::Status status = CheckCount("margin", margin_, kCounterMax / 4);
  if (!slots_) return status;
  const auto slots = static_cast<int64_t>(slots_->done().size());
  status.Update(CheckRange("slots", slots, slot_count_, slot_count_));
  status.Update(CheckCount("end", slots_->end().value(), epochs_.steps_total()));
  status.Update(CheckCount("iterations", slots_->end().value() - slots_->begin().value(),
                           epochs_.Steps(Epoch(0)).size()));
  return status;
}

// Tasks learn from servers which iterations are past. After a restart with an older store, or after
// an adoption, these may lie beyond the epoch of the job's record. The iterations beyond it count
// when their epoch begins.
Iteration SlotWork::DoneOf(const SlotReport& slot) const {
  return behind_tables_ ? std::min(slot.done, slots_->end()) : slot.done;
}

absl::Status SlotWork::Validate(const TaskReport& report) const {
  for (const SlotReport& slot : report.slots) {
    if (slots_) CAPSTAN_RETURN_IF_ERROR(slots_->Validate(slot.slot, DoneOf(slot)));
  }
  return WorkLeases::Validate(report);
}

bool SlotWork::Report(const TaskReport& report) {
  for (const SlotReport& slot : report.slots) {
    if (slots_) slots_->Report(slot.slot, DoneOf(slot)).IgnoreError();  // Validate() checked it.
  }
  return WorkLeases::Report(report);
}

void SlotWork::Clear() {
  WorkLeases::Clear();
  slots_.reset();
}

void SlotWork::StartTraining(Epoch epoch, const ResumePoint* from) {
  const Range steps = epochs_.Steps(epoch);
  const Iteration begin(steps.begin);
  slots_.emplace(slot_count_, begin, Iteration(steps.end),
                 from == nullptr ? begin : from->iteration, backups_);
  margin_ = 0;
}

void SlotWork::Grant(absl::Span<const Rank> ready, const JobTasks& /*tasks*/) {
  slots_->Assign(ready);
}

bool SlotWork::HasUnfinished(Rank rank) const {
  const std::vector<SlotLease> leases = slots_->HeldBy(rank);
  return std::any_of(leases.begin(), leases.end(),
                     [this](const SlotLease& lease) { return done(lease.slot) < lease.end; });
}

void SlotWork::AddTo(Assignment* assignment, Rank rank) const {
  assignment->slots = slots_->HeldBy(rank);
  assignment->epoch_first_iteration = slots_->begin();
}

void SlotWork::AddTo(ResumePoint* point, Epoch /*epoch*/) const {
  point->iteration = slots_->finished();
}

int64_t SlotWork::StepsDone(Epoch /*epoch*/) const { return slots_->finished().value(); }

int64_t SlotWork::SamplesDone() const {
  int64_t samples = 0;
  for (SlotId slot(0); slot.value() < slot_count_; ++slot) {
    samples += epochs_.SlotSamples(slot, done(slot).value() - slots_->begin().value());
  }
  return samples;
}

// A task's iteration is that of its slowest slot.
Iteration SlotWork::IterationOf(const Task& task) const {
  Iteration shown = task.iterations;
  if (!slots_) return shown;
  for (const SlotLease& lease : slots_->HeldBy(task.rank)) {
    const bool first = shown < slots_->begin();
    shown = first ? done(lease.slot) : std::min(shown, done(lease.slot));
  }
  return shown;
}

void SlotWork::PlanQuiet(bool due, int64_t due_steps, double samples_per_second, Instant now) {
  SlotLeases& leases = *slots_;
  if (leases.furthest() > leases.segment_end()) return EndSegmentSoon(samples_per_second);
  if (!leases.AtSegmentEnd()) at_end_since_.reset();
  if (due && leases.AtSegmentEnd()) {
    // The job does not become quiet if a task is at an iteration beyond the segment's end, because
    // the other tasks do not take part in that iteration.
    if (!at_end_since_) at_end_since_ = now;
    margin_ = std::max(margin_, kSegmentMarginMin);
    if (now >= *at_end_since_ + kSegmentNotice) EndSegmentSoon(samples_per_second);
    return;
  }
  if (margin_ > 0) {
    if (due || !leases.AtSegmentEnd()) return;
    margin_ = 0;  // No checkpoint is due any more.
  }
  // In a job with backups, the slots that are needed may be at the end long before the slowest one,
  // for which a checkpoint waits.
  if (due && leases.finished() == leases.segment_end()) return;
  if (due) return EndSegmentSoon(samples_per_second);
  // The end of a checkpoint that is due after a number of iterations is known long before.
  const Iteration end = std::min(leases.end(), Iteration(due_steps));
  if (end > leases.furthest() || end == leases.end()) leases.SetSegmentEnd(end);
}

// Tasks go on until they learn the new end. If one reports an iteration beyond it, the end moves
// on, further each time.
void SlotWork::EndSegmentSoon(double samples_per_second) {
  const double notice = absl::ToDoubleSeconds(kSegmentNotice);
  const auto made =
      static_cast<int64_t>(samples_per_second * notice / static_cast<double>(iteration_samples_));
  margin_ = std::max({kSegmentMarginMin, made, 2 * std::min(margin_, slots_->end().value())});
  at_end_since_.reset();
  slots_->SetSegmentEnd(std::min(slots_->end(), Iteration(slots_->furthest().value() + margin_)));
}

bool SlotWork::IsAtRest(const Task& task) const {
  return task.assignment.slots.empty() || task.idle;
}

void SlotWork::GoOn() {
  margin_ = 0;
  slots_->SetSegmentEnd(slots_->end());
}

}  // namespace capstan::scheduler
