// JobRun: the views of a job for users, and the events for its metrics file.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/time/duration_text.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {
namespace {

// Returns "waits for server-1<what> ...", which names a server that is behind.
std::string WaitsForServers(const JobMembers& members, absl::string_view what) {
  const std::optional<NodeId> behind = members.Behind();
  return absl::StrCat("waits for ", behind.value_or("its servers"), what,
                      behind ? members.making().Describe(*behind) : "");
}

}  // namespace

int64_t JobRun::SamplesDone() const {
  if (!HasBegun()) return 0;
  const bool within = IsWithinEpoch() && !epochs_.returned();
  return within ? epochs_.samples_before() + work_->SamplesDone() : epochs_.samples_end();
}

int64_t JobRun::IterationNow() const {
  if (!HasBegun()) return 0;
  const bool within = IsWithinEpoch() && !epochs_.returned();
  return within ? work_->StepsDone(epochs_.epoch()) : StepsEnd();
}

double JobRun::AccuracyOf(const JobMetrics::Sums& sums) const {
  return HasAccuracy(plan_.objective) ? sums.accuracy() : 0;
}

void JobRun::EmitReport(Instant now, Events& events) {
  const JobMetrics::Sums sums = metrics_.TakeReport();
  if (sums.samples == 0) return;
  last_report_event_ = now;
  events.push_back(Report{.job = plan_.id,
                          .epoch = epochs_.epoch(),
                          .iteration = IterationNow(),
                          .samples_done = SamplesDone(),
                          .samples = sums.samples,
                          .loss = sums.mean_loss(),
                          .accuracy = AccuracyOf(sums),
                          .samples_per_second = metrics_.SamplesPerSecond(now),
                          .staleness_counts = sums.staleness_counts,
                          .rows_cached = sums.rows_cached,
                          .rows_pulled = sums.rows_pulled});
}

std::string JobRun::EndDetail() const {
  if (state_ == JobState::kFailed) return failure_.message;
  const std::string trained =
      absl::StrCat(epochs_.results().size(), " of ", epochs_.plan().epochs(), " epochs in ",
                   DurationText(ended_ - started_));
  const std::string best = epochs_.returned() ? absl::StrCat("; the model is that of epoch ",
                                                             epochs_.ModelEpoch().value() + 1)
                                              : "";
  return absl::StrCat(state_ == JobState::kStopped ? "stopped after " : "trained ", trained, best,
                      IsSaved() ? "; it is saved" : "");
}

std::string JobRun::TextOf(const Activity& activity) {
  if (activity.what.empty()) return "";
  return absl::StrCat(" (", activity.done, " ", activity.what, ")");
}

// Describes the first task that prepares, as an example for all.
std::string JobRun::PreparingDetail() const {
  for (const Task& task : tasks_.all()) {
    if (!task.preparing()) continue;
    return absl::StrCat("; task ", task.rank.value(), " on ", task.node, " prepares",
                        TextOf(task.activity));
  }
  return "";
}

std::string JobRun::Detail(Instant now) const {
  const int live = tasks_.CountIn(Task::State::kLive);
  const std::string who = absl::StrCat(live, " of ", plan_.workers, " tasks");
  const std::string epoch = absl::StrCat("epoch ", epochs_.epoch().value() + 1, " of ",
                                         epochs_.plan().epochs(), " with ", who);
  if (without_worker_since_) {
    return absl::StrCat("no worker task is alive since ",
                        DurationText(now - *without_worker_since_), "; fails after ",
                        DurationText(plan_.worker_wait));
  }
  if (recovery_.active() && !IsModelWhole()) {
    return recovery_.waiting() ? recovery_.Detail(shards_.LostShards(), now)
                               : WaitsForServers(members_, " to restore its shards");
  }
  switch (phase_) {
    case JobPhase::kPlacing:
      return WaitsForServers(members_, " to make its tables");
    case JobPhase::kStarting:
      return absl::StrCat("waits for its tasks to start: ", who, " are ready", PreparingDetail());
    case JobPhase::kTraining:
      if (!training_begun_)
        return absl::StrCat("waits for ", members_.Behind().value_or("a worker"));
      if (work_->quieting()) {
        return absl::StrCat("ends what it has begun for a checkpoint, ", epoch);
      }
      return absl::StrCat("trains ", epoch);
    case JobPhase::kCheckpointing:
      if (pause_.keeping()) {
        return absl::StrCat("keeps the model of epoch ", epochs_.epoch().value() + 1,
                            ", the best so far: waits for ", checkpoints_.Awaited());
      }
      return absl::StrCat("waits for ", checkpoints_.Awaited(),
                          checkpoints_.IsCapturing() ? " to copy its tables, "
                                                     : " to write the job's last checkpoint, ",
                          epoch);
    case JobPhase::kEvaluating:
      if (epochs_.in_final_test()) {
        return absl::StrCat("evaluates the model of epoch ", epochs_.ModelEpoch().value() + 1,
                            " on the test split with ", who);
      }
      return absl::StrCat("evaluates ", epoch);
    case JobPhase::kExporting:
      if (MustReturn()) return "waits for servers to restore the model of the best epoch on";
      return export_.Detail(export_.writer() ? TextOf(tasks_.at(*export_.writer()).activity) : "",
                            now);
    case JobPhase::kFinishing:
      return "the model is written; its tasks exit";
    case JobPhase::kRecovering:
      break;
  }
  return "";
}

const char* JobRun::StateAtEnd(const Task& task) const {
  if (state_ == JobState::kSucceeded) return "finished";
  if (state_ == JobState::kStopped) return "stopped";
  if (state_ == JobState::kFailed) return task.placed() || task.let_go ? "stopped" : "dead";
  return task.placed() || task.let_go ? "finished" : "dead";  // The job's tasks exit.
}

TaskView JobRun::ViewTask(const Task& task) const {
  TaskView view{.rank = task.rank,
                .incarnation = task.incarnation,
                .node = task.node,
                .address = task.address,
                .state = "",
                .iteration = work_->IterationOf(task),
                .samples = task.totals.samples,
                .last_report = task.last_report,
                .wait = task.wait,
                .activity = task.activity};
  if (ended() || phase_ == JobPhase::kFinishing) {
    view.state = StateAtEnd(task);
  } else if (!task.placed()) {
    view.state = task.let_go ? "stopped" : "dead";
  } else if (!task.live()) {
    view.state = task.preparing() ? "preparing" : "starting";
  } else if (!task.wait.what.empty()) {
    view.state = "waiting";
  } else if (task.idle || task.assignment.phase == TaskPhase::kIdle) {
    view.state = "idle";
  } else if (phase_ == JobPhase::kEvaluating) {
    view.state = "evaluating";
  } else if (phase_ == JobPhase::kCheckpointing || task.assignment.paused) {
    view.state = "idle";
  } else {
    view.state = phase_ == JobPhase::kExporting ? "exporting" : "training";
  }
  return view;
}

JobView JobRun::View(Instant now) const {
  JobView view{.id = plan_.id, .state = state_, .failure = failure_};
  view.revision = revision_;
  view.started = started_;
  if (ended()) {
    view.ended = ended_;
    view.detail = EndDetail();
  } else {
    view.phase = recovery_.active() && !IsModelWhole() ? JobPhase::kRecovering : phase_;
    view.detail = Detail(now);
    if (const std::string dead = links_.Describe(); !dead.empty()) {
      absl::StrAppend(&view.detail, "; ", dead);
    }
    view.samples_per_second = training() ? metrics_.SamplesPerSecond(now) : 0;
  }
  view.epoch = epochs_.epoch();
  view.iteration = IterationNow();
  view.samples_done = SamplesDone();
  // After early stopping the rest stays untrained. A job that was saved may train the rest later.
  const bool over =
      (phase_ == JobPhase::kExporting || phase_ == JobPhase::kFinishing) && !IsSaved();
  view.samples_total = over || epochs_.in_final_test() || epochs_.returned()
                           ? view.samples_done
                           : epochs_.plan().samples_total();
  view.loss = metrics_.epoch().mean_loss();
  view.accuracy = AccuracyOf(metrics_.epoch());
  view.results = epochs_.results();
  view.best_epoch = epochs_.BestEpoch();
  view.staleness_counts = metrics_.staleness_counts();
  view.rows_cached = metrics_.rows_cached();
  view.rows_pulled = metrics_.rows_pulled();
  view.restarts = restarts_;
  view.model_folder = export_.folder();
  view.has_model = export_.done();
  if (IsSaved()) view.saved_folder = checkpoints_.complete().back().folder;
  if (!ended()) view.model_kept_until = export_.kept_until();
  for (const Task& task : tasks_.all()) view.tasks.push_back(ViewTask(task));
  return view;
}

}  // namespace capstan::scheduler
