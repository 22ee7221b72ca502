#include "scheduler/core/job/view_of_job.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/time/duration_text.h"

namespace capstan::scheduler {
namespace {

// Returns "waits for server-1<what> ...", which names a server that is behind.
std::string WaitsForServers(const JobMembers& members, absl::string_view what) {
  const std::optional<NodeId> behind = members.Behind();
  return absl::StrCat("waits for ", behind.value_or("its servers"), what,
                      behind ? members.making().Describe(*behind) : "");
}

// Returns "; ...", which describes the first task that prepares, as an example for all.
std::string PreparingDetail(const JobTasks& tasks) {
  for (const Task& task : tasks.all()) {
    if (!task.preparing()) continue;
    return absl::StrCat("; task ", task.rank.value(), " on ", task.node, " prepares",
                        TextOf(task.activity));
  }
  return "";
}

// "3 of 4 tasks"
std::string LiveTasks(const JobParts& job) {
  return absl::StrCat(job.tasks.CountIn(Task::State::kLive), " of ", job.plan.workers, " tasks");
}

std::string TrainingDetail(const JobParts& job, absl::string_view epoch) {
  if (!job.training.begun()) {
    return absl::StrCat("waits for ", job.members.Behind().value_or("a worker"));
  }
  if (job.training.work().quieting()) {
    return absl::StrCat("ends what it has begun for a checkpoint, ", epoch);
  }
  return absl::StrCat("trains ", epoch);
}

std::string CheckpointDetail(const JobParts& job, absl::string_view epoch) {
  const Checkpoints& all = job.checkpoints.all();
  if (job.checkpoints.pause().keeping()) {
    return absl::StrCat("keeps the model of epoch ", job.epochs.epoch().value() + 1,
                        ", the best so far: waits for ", all.Awaited());
  }
  return absl::StrCat("waits for ", all.Awaited(),
                      all.state() == Checkpoints::State::kCapturing
                          ? " to copy its tables, "
                          : " to write the job's last checkpoint, ",
                      epoch);
}

std::string ExportDetail(const JobParts& job, Instant now) {
  if (job.checkpoints.MustReturn()) {
    return "waits for servers to restore the model of the best epoch on";
  }
  const std::optional<Rank> writer = job.exporter.writer();
  return job.exporter.Detail(writer ? TextOf(job.tasks.at(*writer).activity) : "", now);
}

std::string PhaseDetail(const JobParts& job, Instant now) {
  const std::string who = LiveTasks(job);
  const std::string epoch = absl::StrCat("epoch ", job.epochs.epoch().value() + 1, " of ",
                                         job.epochs.plan().epochs(), " with ", who);
  switch (job.phase) {
    case JobPhase::kPlacing:
      return WaitsForServers(job.members, " to make its tables");
    case JobPhase::kStarting:
      return absl::StrCat("waits for its tasks to start: ", who, " are ready",
                          PreparingDetail(job.tasks));
    case JobPhase::kTraining:
      return TrainingDetail(job, epoch);
    case JobPhase::kCheckpointing:
      return CheckpointDetail(job, epoch);
    case JobPhase::kEvaluating:
      if (!job.epochs.in_final_test()) return absl::StrCat("evaluates ", epoch);
      return absl::StrCat("evaluates the model of epoch ", job.epochs.ModelEpoch().value() + 1,
                          " on the test split with ", who);
    case JobPhase::kExporting:
      return ExportDetail(job, now);
    case JobPhase::kFinishing:
      return "the model is written; its tasks exit";
    case JobPhase::kRecovering:
      break;
  }
  return "";
}

std::string EndDetail(const JobParts& job) {
  if (job.state == JobState::kFailed) return job.failure.message;
  const std::string trained =
      absl::StrCat(job.epochs.results().size(), " of ", job.epochs.plan().epochs(), " epochs in ",
                   DurationText(job.ended_at - job.started));
  const std::string best = job.epochs.returned() ? absl::StrCat("; the model is that of epoch ",
                                                                job.epochs.ModelEpoch().value() + 1)
                                                 : "";
  return absl::StrCat(job.state == JobState::kStopped ? "stopped after " : "trained ", trained,
                      best, job.checkpoints.IsSaved() ? "; it is saved" : "");
}

const char* StateAtEnd(const JobParts& job, const Task& task) {
  if (job.state == JobState::kSucceeded) return "finished";
  if (job.state == JobState::kStopped) return "stopped";
  if (job.state == JobState::kFailed) return task.placed() || task.let_go ? "stopped" : "dead";
  return task.placed() || task.let_go ? "finished" : "dead";  // The job's tasks exit.
}

const char* StateOf(const JobParts& job, const Task& task) {
  if (job.ended() || job.phase == JobPhase::kFinishing) return StateAtEnd(job, task);
  if (!task.placed() && job.IsRunDone(task.rank)) return "finished";
  if (!task.placed()) return task.let_go ? "stopped" : "dead";
  if (task.assignment.phase == TaskPhase::kFinish) return "finished";
  if (!task.live()) return task.preparing() ? "preparing" : "starting";
  if (!task.wait.what.empty()) return "waiting";
  if (task.idle || task.assignment.phase == TaskPhase::kIdle) return "idle";
  if (job.phase == JobPhase::kEvaluating) return "evaluating";
  if (job.phase == JobPhase::kCheckpointing || task.assignment.paused) return "idle";
  return job.phase == JobPhase::kExporting ? "exporting" : "training";
}

TaskView ViewOfTask(const JobParts& job, const Task& task) {
  return {.rank = task.rank,
          .incarnation = task.incarnation,
          .node = task.node,
          .address = task.address,
          .state = StateOf(job, task),
          .iteration = job.training.work().IterationOf(task),
          .samples = task.totals.samples,
          .last_report = task.last_report,
          .wait = task.wait,
          .activity = task.activity};
}

bool IsRecovering(const JobParts& job) {
  return job.server_watch.recovery().active() && !job.exporter.IsWhole();
}

// After early stopping the rest stays untrained. A job that was saved may train the rest later.
int64_t SamplesTotal(const JobParts& job) {
  const bool late = job.phase == JobPhase::kExporting || job.phase == JobPhase::kFinishing;
  const bool over = late && !job.checkpoints.IsSaved();
  return over || job.epochs.in_final_test() || job.epochs.returned()
             ? job.training.SamplesDone()
             : job.epochs.plan().samples_total();
}

}  // namespace

std::string DetailOf(const JobParts& job, Instant now) {
  if (const auto since = job.task_watch.without_worker_since()) {
    return absl::StrCat("no worker task is alive since ", DurationText(now - *since),
                        "; fails after ", DurationText(job.plan.worker_wait));
  }
  if (!IsRecovering(job)) return PhaseDetail(job, now);
  const JobRecovery& recovery = job.server_watch.recovery();
  return recovery.waiting() ? recovery.Detail(job.shards.LostShards(), now)
                            : WaitsForServers(job.members, " to restore its shards");
}

JobView ViewOf(const JobParts& job, Instant now) {
  JobView view{.id = job.plan.id, .state = job.state, .failure = job.failure};
  view.revision = job.revision;
  view.started = job.started;
  if (job.ended()) {
    view.ended = job.ended_at;
    view.detail = EndDetail(job);
  } else {
    view.phase = IsRecovering(job) ? JobPhase::kRecovering : job.phase;
    view.detail = DetailOf(job, now);
    if (const std::string dead = job.task_watch.links().Describe(); !dead.empty()) {
      absl::StrAppend(&view.detail, "; ", dead);
    }
    view.samples_per_second = job.training.IsTraining() ? job.metrics.SamplesPerSecond(now) : 0;
    view.model_kept_until = job.exporter.kept_until();
  }
  view.epoch = job.epochs.epoch();
  view.iteration = job.training.StepsDone();
  view.samples_done = job.training.SamplesDone();
  view.samples_total = SamplesTotal(job);
  view.loss = job.metrics.epoch().mean_loss();
  view.accuracy = job.training.AccuracyOf(job.metrics.epoch());
  view.results = job.epochs.results();
  view.best_epoch = job.epochs.BestEpoch();
  view.staleness_counts = job.metrics.staleness_counts();
  view.rows_cached = job.metrics.rows_cached();
  view.rows_pulled = job.metrics.rows_pulled();
  view.restarts = job.task_watch.restarts();
  view.model_folder = job.exporter.folder();
  view.has_model = job.exporter.done();
  if (job.checkpoints.IsSaved()) {
    view.saved_folder = job.checkpoints.all().complete().all().back().folder;
  }
  for (const Task& task : job.tasks.all()) view.tasks.push_back(ViewOfTask(job, task));
  return view;
}

}  // namespace capstan::scheduler
