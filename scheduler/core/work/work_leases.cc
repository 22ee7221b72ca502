#include "scheduler/core/work/work_leases.h"

#include <algorithm>
#include <vector>

#include "common/status/status_macros.h"

namespace capstan::scheduler {

WorkLeases::WorkLeases(const JobPlan& plan)
    : epochs_(plan), batch_size_(plan.batch_size), workers_(plan.workers), scores_(plan.scores) {}

absl::Status WorkLeases::Validate(const TaskReport& report) const {
  for (const SampleReport& sample : report.samples) {
    if (samples_) CAPSTAN_RETURN_IF_ERROR(samples_->Validate(sample));
  }
  return absl::OkStatus();
}

bool WorkLeases::Report(const TaskReport& report) {
  if (!samples_) return false;
  const int64_t positions = samples_->positions_done();
  for (const SampleReport& sample : report.samples) {
    samples_->Report(report.task.rank, sample).IgnoreError();  // Validate() has checked it.
  }
  return samples_->positions_done() > positions;
}

absl::Status WorkLeases::CheckDurable() const {
  absl::Status status = CheckCount("next lease", next_lease_.value());
  if (!samples_) return status;
  const SampleLeases::Options& options = samples_->options();
  status.Update(CheckRange("batch_size", options.batch_size, batch_size_, batch_size_));
  status.Update(CheckRange("workers", options.workers, workers_, workers_));
  status.Update(CheckRange("scores", options.scores, 1, scores_));
  return status;
}

void WorkLeases::Return(Rank rank) {
  if (samples_) samples_->Return(rank);
}

void WorkLeases::StartEvaluation(Range positions) {
  StartSamples(SampleLeases::Use::kEvaluate, positions, scores_);
}

void WorkLeases::GrantEvaluation(absl::Span<const Rank> live) {
  GrantSamples(live, std::vector<SampleLeases::Pace>(live.size()));
}

bool WorkLeases::IsQuiet(const JobTasks& tasks) const {
  return MayBeQuiet() &&
         std::all_of(tasks.all().begin(), tasks.all().end(),
                     [this](const Task& task) { return !task.live() || IsAtRest(task); });
}

void WorkLeases::ForgetSamples() {
  if (samples_) next_lease_ = samples_->next_id();
  samples_.reset();
}

void WorkLeases::StartSamples(SampleLeases::Use use, Range positions, int64_t scores) {
  ForgetSamples();
  samples_.emplace(SampleLeases::Options{.use = use,
                                         .count = positions.size(),
                                         .batch_size = batch_size_,
                                         .workers = workers_,
                                         .first_id = next_lease_,
                                         .begin = positions.begin,
                                         .scores = scores});
}

void WorkLeases::GrantSamples(absl::Span<const Rank> ranks,
                              absl::Span<const SampleLeases::Pace> paces) {
  for (int held = 0; held < kLeasesPerTask; ++held) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (samples_->HeldCount(ranks[i]) <= held) samples_->Grant(ranks[i], paces[i]);
    }
  }
}

}  // namespace capstan::scheduler
