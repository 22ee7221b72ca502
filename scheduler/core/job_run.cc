// JobRun: the reports of tasks, and the end of a job. job_run_phases.cc has the phases,
// job_run_servers.cc servers and lost shards, job_run_links.cc dead links, job_run_view.cc views.
#include "scheduler/core/job_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "common/time/duration_text.h"

namespace capstan::scheduler {
namespace {

constexpr uint64_t kRevisionsPerLife = uint64_t{1} << 32;

std::string Describe(const TaskExit& exit) {
  std::string text = exit.signal != 0
                         ? absl::StrCat("the process was ended by signal ", exit.signal)
                         : absl::StrCat("the process exited with code ", exit.exit_code,
                                        " before the job was done");
  if (!exit.last_lines.empty())
    absl::StrAppend(&text, "; the last lines of its log:\n", exit.last_lines);
  return text;
}

absl::Status OutOfRange(const TaskKey& task, absl::string_view field, int64_t value) {
  return absl::InvalidArgumentError(absl::StrCat(task.job, " task ", task.rank.value(), ": ", field,
                                                 " is ", value, ", expected 0 or more"));
}

// Returns true if another incarnation of the task, perhaps on another daemon, may not fail in this
// way. Such failures count against max_restarts.
bool MayPass(FailureReason reason) {
  return reason == FailureReason::kDeviceLost || reason == FailureReason::kInternal ||
         reason == FailureReason::kHang;
}

bool HasGoneOn(const Activity& before, const Activity& now) {
  if (Planted(PlantedBug::kTakeBusyForHung)) return false;
  return now.what != before.what || now.done > before.done;
}

ShardMap::Options MapOptions(const JobPlan& plan, ShardMap::Options options) {
  options.replicas = plan.replicas;
  options.servers = plan.servers;
  return options;
}

std::unique_ptr<WorkLeases> MakeWork(const JobPlan& plan, const JobRun::Options& options) {
  if (plan.consistency.synchronous()) return std::make_unique<SlotWork>(plan);
  return std::make_unique<SampleWork>(plan, options.lease_ahead);
}

}  // namespace

JobRun::JobRun(const JobPlan& plan, std::shared_ptr<const Routing> routing, const Options& options,
               Instant now, std::optional<RestoreFrom> restore)
    : plan_(plan),
      options_(options),
      shards_(*routing, MapOptions(plan, options.shards)),
      routing_(std::move(routing)),
      started_(now),
      tasks_(plan.workers, options.tasks),
      links_(options.links),
      work_(MakeWork(plan, options)),
      members_(shards_.Primaries(), now, restore ? restore->at.membership.Next() : Generation(1)),
      epochs_(plan),
      export_(plan.id, plan.export_path, options.keep_model),
      checkpoints_(plan),
      recovery_(plan, std::move(restore)),
      last_report_event_(now) {}

// ---------------------------------------------------------------- tasks

void JobRun::PlaceTask(Rank rank, Incarnation incarnation, const NodeId& node,
                       const std::string& address, Instant now, Events& events) {
  const bool restart = tasks_.at(rank).incarnation > Incarnation(0);
  if (restart) ++restarts_;
  tasks_.Place(rank, incarnation, node, address, now);
  members_.Add(rank, incarnation, now);
  events.push_back(TaskPlaced{{plan_.id, rank, incarnation}, node, restart});
  ++desired_version_;
  ++revision_;
  Advance(now, events);
}

absl::Status JobRun::ValidateReport(const TaskReport& report) const {
  const TaskTotals& totals = report.totals;
  if (report.iterations < Iteration(0)) {
    return OutOfRange(report.task, "iterations", report.iterations.value());
  }
  if (totals.samples < 0) return OutOfRange(report.task, "samples_total", totals.samples);
  if (totals.correct < 0) return OutOfRange(report.task, "correct_total", totals.correct);
  if (report.activity.done < 0) {
    return OutOfRange(report.task, "activity.done", report.activity.done);
  }
  if (totals.rows_cached < 0) return OutOfRange(report.task, "rows_cached", totals.rows_cached);
  if (totals.rows_pulled < 0) return OutOfRange(report.task, "rows_pulled", totals.rows_pulled);
  if (totals.staleness_counts.size() > kStalenessBuckets) {
    return absl::InvalidArgumentError(
        absl::StrCat("staleness_counts: ", totals.staleness_counts.size(),
                     " entries, expected at most ", kStalenessBuckets));
  }
  for (const int64_t count : totals.staleness_counts) {
    if (count < 0) return OutOfRange(report.task, "staleness_counts", count);
  }
  return work_->Validate(report);
}

absl::Status JobRun::OnTaskReport(const TaskReport& report, Instant now, Events& events) {
  Task* task = ended() ? nullptr : tasks_.FindLife(report.task.rank, report.task.incarnation);
  if (task == nullptr) {
    return absl::AbortedError(absl::StrCat(report.task.job, " task ", report.task.rank.value(),
                                           ": incarnation ", report.task.incarnation.value(),
                                           " is not wanted any more"));
  }
  CAPSTAN_RETURN_IF_ERROR(ValidateReport(report));
  tasks_.Renew(*task, report.preparing, now);
  ++revision_;
  const bool moved = TakeProgress(*task, report, now);
  if (!report.failure.happened()) {
    NoteContradiction(*task, moved, now);
    if (training() && now >= last_report_event_ + options_.report_interval) EmitReport(now, events);
    Advance(now, events);
  } else if (IsOfExport(*task, report.failure)) {
    // The task continues in another incarnation, which waits; the tables stay unchanged.
    const std::string why =
        absl::StrCat("task ", task->rank.value(), " on ", task->node, ": ", report.failure.message);
    EndTask(task->rank, report.failure, /*counted=*/false, now, events);
    export_.Keep(why, now, events);
    ++decisions_;
    Advance(now, events);
  } else if (MayPass(report.failure.reason) || !IsNeeded(task->rank)) {
    EndTask(task->rank, report.failure, /*counted=*/true, now, events);
    Advance(now, events);
  } else {
    const std::string where = absl::StrCat("task ", task->rank.value(), " on ", task->node, ": ");
    End(JobState::kFailed, {report.failure.reason, where + report.failure.message}, now, events);
  }
  return absl::OkStatus();
}

Failure JobRun::OlderStore(const std::string& witness) {
  return {FailureReason::kInternal,
          absl::StrCat(witness,
                       " knows of decisions that the scheduler does not know: the scheduler's "
                       "store is an older copy of itself, and what it decided since is lost; go on "
                       "from a checkpoint")};
}

void JobRun::OnOlderStore(const std::string& witness, Instant now, Events& events) {
  if (!ended()) End(JobState::kFailed, OlderStore(witness), now, events);
}

// An older report does no harm, because all figures only grow.
bool JobRun::TakeProgress(Task& task, const TaskReport& report, Instant now) {
  bool moved = report.totals.samples > task.totals.samples || report.iterations > task.iterations ||
               HasGoneOn(task.activity, report.activity);
  metrics_.Add(report.totals, task.totals, now);
  if (training()) task.rate.Add(task.totals.samples, now);
  task.iterations = std::max(task.iterations, report.iterations);
  task.assignment_seen = std::max(task.assignment_seen, report.assignment_seen);
  task.idle = task.live() && report.idle && report.assignment_seen == task.assignment.generation;
  task.wait = report.wait;
  links_.OnReport(task.rank, task.node, task.wait.silent, now);
  task.activity = report.activity;
  if (work_->Report(report)) moved = true;
  const bool current = report.assignment_seen == task.assignment.generation;
  if (report.exported && current && export_.writer() == task.rank &&
      export_.OnWritten(report.task)) {
    ++decisions_;
  }
  return moved;
}

void JobRun::NoteContradiction(Task& task, bool moved, Instant now) {
  const bool works = HasUnfinishedWork(task);
  if (!task.idle || !works) {
    task.contradicts_since.reset();
  } else if (!task.contradicts_since) {
    task.contradicts_since = now;
  }
  if (moved || !works || !task.wait.what.empty()) {
    task.stuck_since.reset();
  } else if (!task.stuck_since) {
    task.stuck_since = now;
  }
}

bool JobRun::HasUnfinishedWork(const Task& task) const {
  if (task.preparing()) return true;
  if (task.assignment.paused) return false;
  switch (phase_) {
    case JobPhase::kTraining:
      return work_->HasUnfinished(task.rank);
    case JobPhase::kEvaluating:
      return work_->evaluation().HeldCount(task.rank) > 0;
    case JobPhase::kExporting:
      return export_.HasWork(task.rank);
    case JobPhase::kFinishing:
      return true;
    case JobPhase::kPlacing:
    case JobPhase::kStarting:
    case JobPhase::kCheckpointing:
    case JobPhase::kRecovering:
      return false;
  }
  return false;
}

void JobRun::OnTaskExited(const TaskKey& key, const TaskExit& exit, bool node_leaving, Instant now,
                          Events& events) {
  const Task* task = ended() ? nullptr : tasks_.FindLife(key.rank, key.incarnation);
  if (task == nullptr) return;
  Failure why{FailureReason::kTaskCrashed, Describe(exit)};
  if (node_leaving) why = {FailureReason::kNone, absl::StrCat(task->node, " leaves")};
  if (!IsNeeded(key.rank) && exit.signal == 0 && exit.exit_code == 0) {
    why = {FailureReason::kNone, "its work is done"};
  }
  EndTask(key.rank, why, /*counted=*/!node_leaving, now, events);
  Advance(now, events);
}

void JobRun::OnTaskExpired(Rank rank, Instant now, Events& events) {
  const Task& task = tasks_.at(rank);
  if (ended() || !task.placed()) return;
  const std::string silence = DurationText(now - task.last_report);
  const bool starting = task.state == Task::State::kStarting;
  const std::string message =
      absl::StrCat(starting ? "did not start within " : "no report for ", silence);
  EndTask(rank, {FailureReason::kNoHeartbeat, message}, /*counted=*/true, now, events);
  Advance(now, events);
}

void JobRun::EndTask(Rank rank, const Failure& failure, bool counted, Instant now, Events& events) {
  const Task& task = tasks_.at(rank);
  const TaskKey key{plan_.id, rank, task.incarnation};
  const NodeId node = task.node;
  counted = counted && IsNeeded(rank);
  events.push_back(TaskDied{key, node, failure, counted});
  last_death_ = absl::StrCat("task ", rank.value(), " on ", node, ": ", failure.message);
  members_.Remove(rank, now);
  if (!Planted(PlantedBug::kLoseLeaseOfTheDead)) work_->Return(rank);
  export_.OnTaskEnded(rank);
  tasks_.End(rank);
  links_.OnTaskEnded(rank);
  tasks_.at(rank).let_go = !failure.happened();
  changed_assignments_.erase(rank);
  ++desired_version_;
  ++revision_;
  if (!counted) return;
  if (!first_failure_.happened()) first_failure_ = {failure.reason, last_death_};
  if (++crashes_ <= plan_.max_restarts) return;
  End(JobState::kFailed,
      {first_failure_.reason, absl::StrCat(first_failure_.message, " (the first of ", crashes_,
                                           " crashes; max_restarts is ", plan_.max_restarts, ")")},
      now, events);
}

// ---------------------------------------------------------------- the export

bool JobRun::IsModelWhole() const {
  return phase_ == JobPhase::kFinishing || (phase_ == JobPhase::kExporting && export_.IsStaged());
}

bool JobRun::IsNeeded(Rank rank) const {
  return !IsModelWhole() || (phase_ == JobPhase::kExporting && export_.IsLeftTo(rank));
}

bool JobRun::AwaitsModel(const TaskKey& exporter) const {
  return !ended() && phase_ == JobPhase::kExporting && export_.Awaits(exporter);
}

std::optional<ModelPublish> JobRun::TakeModelPublish() {
  return ended() || phase_ != JobPhase::kExporting ? std::nullopt : export_.TakePublish();
}

bool JobRun::WritesInto(const std::string& folder) const {
  if (ended() || folder.empty()) return false;
  if (checkpoints_.order().folder == folder) return true;
  const std::optional<Rank> writer = export_.writer();
  if (phase_ != JobPhase::kExporting || !writer || !tasks_.at(*writer).live()) return false;
  return export_.WritesInto(folder, {plan_.id, *writer, tasks_.at(*writer).incarnation});
}

void JobRun::OnModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                              Events& events) {
  if (!AwaitsModel(exporter)) return;
  ++decisions_;
  export_.OnPublished(status, events);
  Advance(now, events);
}

bool JobRun::IsOfExport(const Task& task, const Failure& failure) const {
  return failure.reason == FailureReason::kOutputFailed && phase_ == JobPhase::kExporting &&
         export_.writer() == task.rank;
}

absl::Status JobRun::AskExport(const std::string& folder, Instant now, Events& events) {
  if (ended() || !export_.IsKept()) {
    return absl::FailedPreconditionError(absl::StrCat(
        plan_.id,
        " keeps no model that could not be written: ", ended() ? "it has ended" : Detail(now)));
  }
  export_.Ask(folder);
  ++decisions_;
  ++revision_;
  Advance(now, events);
  return absl::OkStatus();
}

void JobRun::CheckKeptModel(Instant now, Events& events) {
  if (const auto overdue = export_.Overdue(now)) End(JobState::kFailed, *overdue, now, events);
}

// ---------------------------------------------------------------- time and ends

void JobRun::CheckWorkers(Instant now, Events& events) {
  if (ended()) return;
  if (IsModelWhole() || tasks_.CountIn(Task::State::kUnplaced) < plan_.workers) {
    without_worker_since_.reset();
    return;
  }
  if (!without_worker_since_) without_worker_since_ = now;
  if (now < *without_worker_since_ + plan_.worker_wait) return;
  std::string message =
      absl::StrCat("no live worker task for ", DurationText(now - *without_worker_since_));
  if (!last_death_.empty()) absl::StrAppend(&message, "; the last to die was ", last_death_);
  End(JobState::kFailed, {FailureReason::kNoHeartbeat, message}, now, events);
}

void JobRun::Stop(Instant now, Events& events) {
  if (!ended()) End(JobState::kStopped, {}, now, events);
}

void JobRun::Tick(Instant now, Events& events) {
  if (ended()) return;
  EndHungTasks(now, events);
  if (!ended()) CheckLinks(now, events);
  if (!ended()) CheckServers(now, events);
  if (!ended()) CheckKeptModel(now, events);
  checkpoints_.Tick(now);
  if (!ended()) Advance(now, events);
}

void JobRun::EndHungTasks(Instant now, Events& events) {
  for (Task& task : tasks_.all()) {
    std::string why;
    if (task.contradicts_since && now >= *task.contradicts_since + options_.contradiction_limit) {
      why = "it says that it is idle, and has not reported its work done";
    } else if (task.stuck_since && now >= *task.stuck_since + options_.task_progress_limit) {
      why = absl::StrCat("it has not moved on with ",
                         task.preparing() ? "its preparation" : "its work", " for ",
                         DurationText(now - *task.stuck_since), TextOf(task.activity),
                         ", and names nothing that it waits for");
    } else {
      continue;
    }
    EndTask(task.rank, {FailureReason::kHang, why}, /*counted=*/true, now, events);
    if (ended()) return;
  }
}

Instant JobRun::NextDeadline() const {
  if (ended()) return Instant::InfiniteFuture();
  Instant next = tasks_.NextDeadline();
  for (const Task& task : tasks_.all()) {
    if (task.contradicts_since) {
      next = std::min(next, *task.contradicts_since + options_.contradiction_limit);
    }
    if (task.stuck_since) next = std::min(next, *task.stuck_since + options_.task_progress_limit);
  }
  next = std::min(next, checkpoints_.Limit());
  if (checkpoints_.IsIdle()) next = std::min(next, pause_.NextAttempt());
  next = std::min(next, export_.kept_until().value_or(next));
  if (phase_ == JobPhase::kTraining && training_begun_ && !work_->quieting() &&
      !recovery_.active() && checkpoints_.IsIdle()) {
    next = std::min(next, checkpoints_.DueAt());
  }
  if (phase_ == JobPhase::kFinishing)
    return std::min(next, finishing_since_ + options_.finish_limit);
  if (without_worker_since_) next = std::min(next, *without_worker_since_ + plan_.worker_wait);
  next = std::min(next, shards_.NextDeadline());
  if (IsModelWhole()) return next;
  next = std::min(next, links_.NextDeadline());
  if (recovery_.waiting()) return std::min(next, recovery_.NextDeadline());
  const auto late = members_.Latest();
  return late ? std::min(next, late->since + options_.server_limit) : next;
}

void JobRun::End(JobState state, const Failure& failure, Instant now, Events& events) {
  state_ = state;
  failure_ = failure;
  ended_ = now;
  for (const Task& task : tasks_.all()) {
    if (task.placed()) tasks_.End(task.rank);
  }
  changed_assignments_.clear();
  checkpoints_.Abandon("the job ended");
  NoteCheckpoints(events);
  ++desired_version_;
  ++revision_;
  events.push_back(JobEnded{plan_.id, state, failure});
}

std::vector<Rank> JobRun::UnplacedRanks() const {
  if (ended() || IsModelWhole()) return {};
  return tasks_.Unplaced();
}

std::vector<Rank> JobRun::ExpiredTasks(Instant now) const {
  return ended() ? std::vector<Rank>{} : tasks_.Expired(now);
}

std::vector<TaskKey> JobRun::PlacedTasks() const {
  std::vector<TaskKey> keys;
  for (const Task& task : tasks_.all()) {
    if (task.placed()) keys.push_back({plan_.id, task.rank, task.incarnation});
  }
  return keys;
}

const Task* JobRun::FindLife(const TaskKey& key) const {
  const int64_t rank = key.rank.value();
  if (ended() || rank < 0 || rank >= plan_.workers) return nullptr;
  const Task& task = tasks_.at(key.rank);
  return task.placed() && task.incarnation == key.incarnation ? &task : nullptr;
}

void JobRun::RestartLimits(Instant now, absl::Duration rejoin) {
  if (ended()) return;
  tasks_.Restored(now, rejoin);
  members_.Restored(now);
  links_.RestartLimits(now);
  checkpoints_.Restored(now);
  recovery_.RestartLimits(now);
  if (without_worker_since_) without_worker_since_ = now;
  export_.RestartLimits(now);
  finishing_since_ = now;
}

void JobRun::Restored(Instant now, absl::Duration rejoin, Generation first) {
  if (ended()) return;
  RestartLimits(now, rejoin);
  members_.Restored(now, first);
  work_->Restored();
  last_report_event_ = now;
  // Users saw fewer than this many revisions (reports) that were not stored.
  revision_ += kRevisionsPerLife;
  ++decisions_;  // Stores the new revision, to which the next incarnation adds.
}

std::vector<Rank> JobRun::TakeChangedAssignments() {
  std::vector<Rank> ranks(changed_assignments_.begin(), changed_assignments_.end());
  changed_assignments_.clear();
  return ranks;
}

}  // namespace capstan::scheduler
