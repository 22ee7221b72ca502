#include "scheduler/core/job/parts/job_training.h"

#include <algorithm>
#include <limits>

#include "common/planted/planted_bug.h"

namespace capstan::scheduler {
namespace {

std::unique_ptr<WorkLeases> MakeWork(const JobShared& job) {
  if (job.plan.consistency.synchronous()) return std::make_unique<SlotWork>(job.plan);
  return std::make_unique<SampleWork>(job.plan, job.options.lease_ahead);
}

}  // namespace

JobTraining::JobTraining(JobShared* job, const JobCheckpoints* checkpoints)
    : job_(*job), checkpoints_(*checkpoints), work_(MakeWork(*job)), last_report_(job->started) {}

// ---------------------------------------------------------------- the phase

void JobTraining::Enter(Epoch epoch, const ResumePoint* from, Instant now, Events& events) {
  const double factor = job_.epochs.Start(epoch, from == nullptr ? now : now - from->epoch_time);
  job_.members.SetLearningRateFactor(factor, now);
  begun_ = false;
  job_.metrics.StartEpoch();
  for (Task& task : job_.tasks.all()) task.rate.Begin();
  work_->StartTraining(epoch, from);
  job_.SetPhase(JobPhase::kTraining, events);
}

void JobTraining::Resume(const ResumePoint& at, Instant now, Events& events) {
  Enter(at.epoch, &at, now, events);
  // If no part of the epoch is trained, the checkpoint's sums are those of the epoch before.
  const bool fresh = at.epoch_time == absl::ZeroDuration();
  job_.metrics = at.metrics;
  if (fresh) job_.metrics.StartEpoch();
}

void JobTraining::Advance(Instant now) {
  if (!begun_ && !Begin(now)) return;
  PlanQuiet(now);
  if (!work_->paused()) Grant(now);
}

// Activates all live tasks at one iteration when all servers know them as inactive. Returns true
// when that is done.
bool JobTraining::Begin(Instant now) {
  const std::vector<Rank> live = job_.tasks.Live();
  const bool possible = std::all_of(live.begin(), live.end(), [this](Rank rank) {
    return IsActive(rank) || job_.members.MayActivate(rank);
  });
  if (live.empty() || !possible || !job_.members.HasLearningRate()) return false;
  begun_ = true;
  ActivateJoiners(now);
  return true;
}

bool JobTraining::IsActive(Rank rank) const {
  const Member* const member = job_.members.Find(rank);
  return member != nullptr && member->active;
}

// Activates tasks that joined, and tasks that were deactivated when there was no work for them.
void JobTraining::ActivateJoiners(Instant now) {
  if (!work_->HasWorkForMore()) return;
  const Iteration start = job_.tasks.HighestIteration();
  for (const Rank rank : job_.tasks.Live()) {
    if (!job_.members.MayActivate(rank)) continue;
    job_.members.Activate(rank, work_->has_task_clocks() ? start : Iteration(0), now);
    Task& task = job_.tasks.at(rank);
    task.iterations = std::max(task.iterations, start);
  }
}

std::vector<Rank> JobTraining::ReadyRanks() const {
  std::vector<Rank> ready = job_.tasks.Live();
  std::erase_if(ready, [this](Rank rank) { return !job_.members.IsReady(rank); });
  return ready;
}

void JobTraining::Grant(Instant now) {
  ActivateJoiners(now);
  work_->Grant(ReadyRanks(), job_.tasks);
  DeactivateWorkless(now);
}

// Deactivates tasks without work, because the SSP rule must not wait for them.
void JobTraining::DeactivateWorkless(Instant now) {
  if (work_->HasWorkForMore()) return;
  for (const Rank rank : job_.tasks.Live()) {
    if (!work_->HasUnfinished(rank)) job_.members.Deactivate(rank, now);
  }
}

void JobTraining::Rest(Instant now) {
  if (!work_->has_task_clocks()) return;
  for (const Rank rank : job_.tasks.Live()) job_.members.Deactivate(rank, now);
}

bool JobTraining::IsOver() const {
  return work_->trained() &&
         (job_.members.AreDeadFenced() || Planted(PlantedBug::kTakeMomentUnfenced));
}

// ---------------------------------------------------------------- quiet moments

bool JobTraining::IsQuiet() const {
  if (job_.phase != JobPhase::kTraining || !begun_) return false;
  // A server that does not know the newest membership may still accept a push of a dead task.
  if (job_.members.Behind() && !Planted(PlantedBug::kTakeMomentUnfenced)) return false;
  return work_->IsQuiet(job_.tasks);
}

// Makes the job quiet when the next checkpoint is due.
void JobTraining::PlanQuiet(Instant now) {
  const Checkpoints& all = checkpoints_.all();
  // A checkpoint that is due after a number of iterations is known long before, if the last
  // checkpoint has ended.
  const bool idle = all.state() == Checkpoints::State::kIdle;
  const int64_t counted = idle ? all.clock().DueSteps() : std::numeric_limits<int64_t>::max();
  due_ = all.IsDue(StepsDone(), now);
  work_->PlanQuiet(due_, counted, job_.metrics.SamplesPerSecond(now), now);
}

Instant JobTraining::NextQuiet() const {
  const Checkpoints& all = checkpoints_.all();
  const bool waits = job_.phase == JobPhase::kTraining && begun_ && !due_ &&
                     all.state() == Checkpoints::State::kIdle;
  return waits ? all.clock().DueAt() : Instant::InfiniteFuture();
}

ResumePoint JobTraining::PointNow(CheckpointPause::At moment, Instant now) const {
  ResumePoint at;
  at.metrics = job_.metrics;
  at.membership = job_.members.membership().generation;
  at.incarnation = job_.tasks.LastIncarnation();
  at.trained = job_.training_time.trained();
  if (moment == CheckpointPause::At::kBetweenEpochs) {
    job_.epochs.AddTo(&at, JobEpochs::Moment::kAfter, now);
  } else {
    job_.epochs.AddTo(&at, JobEpochs::Moment::kWithin, now);
    work_->AddTo(&at, job_.epochs.epoch());
  }
  return at;
}

// ---------------------------------------------------------------- how far it is

bool JobTraining::IsTraining() const {
  return job_.phase == JobPhase::kTraining ||
         (job_.phase == JobPhase::kCheckpointing && !checkpoints_.IsBetweenEpochs());
}

bool JobTraining::IsWithinEpoch() const {
  return IsTraining() || (checkpoints_.IsSaved() && !checkpoints_.IsBetweenEpochs());
}

int64_t JobTraining::StepsDone() const {
  if (!job_.HasBegun()) return 0;
  const bool within = IsWithinEpoch() && !job_.epochs.returned();
  return within ? work_->StepsDone(job_.epochs.epoch()) : StepsAtEnd();
}

int64_t JobTraining::StepsAtEnd() const {
  return job_.epochs.plan().Steps(job_.epochs.epoch()).end;
}

int64_t JobTraining::SamplesDone() const {
  if (!job_.HasBegun()) return 0;
  const bool within = IsWithinEpoch() && !job_.epochs.returned();
  return within ? job_.epochs.samples_before() + work_->SamplesDone() : job_.epochs.samples_end();
}

// ---------------------------------------------------------------- reports

bool JobTraining::OnReport(Task& task, const TaskReport& report, Instant now) {
  job_.metrics.Add(report.totals, task.totals, now);
  if (IsTraining()) task.rate.Add(task.totals.samples, now);
  return work_->Report(report);
}

void JobTraining::EmitReportIfDue(Instant now, Events& events) {
  if (IsTraining() && now >= last_report_ + job_.options.report_interval) EmitReport(now, events);
}

void JobTraining::EmitReport(Instant now, Events& events) {
  const JobMetrics::Sums sums = job_.metrics.TakeReport();
  if (sums.samples == 0) return;
  last_report_ = now;
  events.push_back(Report{.job = job_.plan.id,
                          .epoch = job_.epochs.epoch(),
                          .iteration = StepsDone(),
                          .samples_done = SamplesDone(),
                          .samples = sums.samples,
                          .loss = sums.mean_loss(),
                          .accuracy = AccuracyOf(sums),
                          .samples_per_second = job_.metrics.SamplesPerSecond(now),
                          .staleness_counts = sums.staleness_counts,
                          .rows_cached = sums.rows_cached,
                          .rows_pulled = sums.rows_pulled});
}

double JobTraining::AccuracyOf(const JobMetrics::Sums& sums) const {
  return HasAccuracy(job_.plan.objective) ? sums.accuracy() : 0;
}

bool JobTraining::HasLeases(SampleLeases::Use use) const {
  return job_.plan.consistency.synchronous() ? static_cast<const SlotWork&>(*work_).Has(use)
                                             : static_cast<const SampleWork&>(*work_).Has(use);
}

void JobTraining::Restored(Instant now) {
  work_->Restored();
  last_report_ = now;
}

}  // namespace capstan::scheduler
