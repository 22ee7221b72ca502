#include "scheduler/core/work/sample_work.h"

#include <algorithm>

namespace capstan::scheduler {

void SampleWork::Clear() {
  WorkLeases::Clear();
  paused_ = false;
}

void SampleWork::StartTraining(Epoch epoch, const ResumePoint* from) {
  StartSamples(SampleLeases::Use::kTrain, {0, epochs_.Samples(epoch)}, /*scores=*/1);
  paused_ = false;
  // Otherwise the whole epoch must be trained: it lies beyond the last epoch of the saved job.
  const bool begun = from != nullptr && (!from->untrained.empty() || from->batches > 0);
  if (begun) samples_->Resume(from->untrained, from->batches);
}

void SampleWork::Grant(absl::Span<const Rank> ready, const JobTasks& tasks) {
  if (own_pace_) {
    for (const Rank rank : ready) samples_->GrantAt(rank, rank.value());
    return;
  }
  GrantSamples(ready, PacesOf(ready, tasks));
}

std::vector<SampleLeases::Pace> SampleWork::PacesOf(absl::Span<const Rank> ranks,
                                                    const JobTasks& tasks) const {
  std::vector<SampleLeases::Pace> paces(ranks.size());
  double sum = 0;
  for (const Rank rank : ranks) {
    if (tasks.at(rank).rate.per_second() == 0) return paces;
    sum += tasks.at(rank).rate.per_second();
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double rate = tasks.at(ranks[i]).rate.per_second();
    paces[i] = {.share = rate / sum,
                .positions_max = static_cast<int64_t>(rate * absl::ToDoubleSeconds(lease_ahead_))};
  }
  return paces;
}

void SampleWork::AddTo(Assignment* assignment, Rank rank) const {
  assignment->samples = samples_->HeldBy(rank);
}

void SampleWork::AddTo(ResumePoint* point, Epoch epoch) const {
  point->iteration = Iteration(StepsDone(epoch));
  point->untrained = samples_->Undone();
  point->batches = samples_->batches_done();
}

int64_t SampleWork::StepsDone(Epoch epoch) const {
  const Range steps = epochs_.Steps(epoch);
  // A lease that was cut short by a death may have added a batch.
  return std::min(steps.begin + samples_->batches_done(), steps.end);
}

void SampleWork::PlanQuiet(bool due, int64_t /*due_steps*/, double /*samples_per_second*/,
                           Instant /*now*/) {
  paused_ = due;
}

bool SampleWork::IsAtRest(const Task& task) const {
  // A task with unfinished work is at rest only after it has seen a paused assignment.
  return !HasUnfinished(task.rank) || (task.idle && task.assignment.paused);
}

}  // namespace capstan::scheduler
