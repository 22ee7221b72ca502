// JobRun: the facts that come in, and the end of a job. job_run_phases.cc has the phases.
#include "scheduler/core/job/job_run.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/time/duration_text.h"
#include "scheduler/core/job/view_of_job.h"

namespace capstan::scheduler {
namespace {

constexpr uint64_t kRevisionsPerIncarnation = uint64_t{1} << 32;

std::string Describe(const TaskExit& exit) {
  std::string text = exit.signal != 0
                         ? absl::StrCat("the process was ended by signal ", exit.signal)
                         : absl::StrCat("the process exited with code ", exit.exit_code,
                                        " before the job was done");
  if (!exit.last_lines.empty())
    absl::StrAppend(&text, "; the last lines of its log:\n", exit.last_lines);
  return text;
}

// Returns true if another incarnation of the task, perhaps on another daemon, may not fail in this
// way. Such failures count against max_restarts.
bool MayPass(FailureReason reason) {
  return reason == FailureReason::kDeviceLost || reason == FailureReason::kInternal ||
         reason == FailureReason::kHang;
}

std::string WhyEnded(const JobParts& job, Instant now) {
  return job.ended() ? "it has ended" : DetailOf(job, now);
}

}  // namespace

JobRun::JobRun(const JobPlan& plan, std::shared_ptr<const Routing> routing, const Options& options,
               Instant now, std::optional<RestoreFrom> restore)
    : parts_(plan, std::move(routing), options, now, std::move(restore)) {}

// ---------------------------------------------------------------- tasks

void JobRun::PlaceTask(Rank rank, Incarnation incarnation, const NodeId& node,
                       const std::string& address, Instant now, Events& events) {
  parts_.task_watch.Place(rank, incarnation, node, address, now, events);
  Advance(now, events);
}

absl::Status JobRun::OnTaskReport(const TaskReport& report, Instant now, Events& events) {
  CAPSTAN_RETURN_IF_ERROR(parts_.task_watch.OnReport(report, now));
  if (report.failure.happened()) {
    OnTaskFailed(report, now, events);
  } else {
    parts_.training.EmitReportIfDue(now, events);
  }
  Advance(now, events);
  return absl::OkStatus();
}

void JobRun::OnTaskFailed(const TaskReport& report, Instant now, Events& events) {
  const Rank rank = report.task.rank;
  const Failure& failure = report.failure;
  const std::string why = absl::StrCat("task ", rank.value(), " on ", parts_.tasks.at(rank).node,
                                       ": ", failure.message);
  if (failure.reason == FailureReason::kOutputFailed && parts_.phase == JobPhase::kExporting &&
      parts_.exporter.writer() == rank) {
    // The task continues in another incarnation, which waits; the tables stay unchanged.
    parts_.task_watch.EndUncounted(rank, failure, now, events);
    parts_.exporter.Keep(why, now, events);
    ++parts_.decisions;
  } else if (MayPass(failure.reason) || !parts_.task_watch.IsNeeded(rank)) {
    EndTask(rank, failure, now, events);
  } else {
    End(JobState::kFailed, {failure.reason, why}, now, events);
  }
}

void JobRun::OnTaskExited(const TaskKey& key, const TaskExit& exit, bool node_leaving, Instant now,
                          Events& events) {
  const Task* task = parts_.tasks.FindIncarnation(key.rank, key.incarnation);
  if (task == nullptr) return;
  Failure why{FailureReason::kTaskCrashed, Describe(exit)};
  if (node_leaving) why = {FailureReason::kNone, absl::StrCat(task->node, " leaves")};
  if (!parts_.task_watch.IsNeeded(key.rank) && exit.signal == 0 && exit.exit_code == 0) {
    why = {FailureReason::kNone, "its work is done"};
  }
  if (node_leaving) {
    parts_.task_watch.EndUncounted(key.rank, why, now, events);
  } else {
    EndTask(key.rank, why, now, events);
  }
  Advance(now, events);
}

void JobRun::ExpireTasks(absl::FunctionRef<bool(const NodeId&)> is_silent, Instant now,
                         Events& events) {
  if (parts_.ended()) return;
  for (const Rank rank : parts_.tasks.Expired(now)) {
    if (is_silent(parts_.tasks.at(rank).node)) {
      parts_.tasks.Excuse(rank, now);
    } else {
      OnTaskExpired(rank, now, events);
    }
  }
}

void JobRun::OnTaskExpired(Rank rank, Instant now, Events& events) {
  const Task& task = parts_.tasks.at(rank);
  if (!task.placed()) return;
  const std::string silence = DurationText(now - task.last_report);
  const bool starting = task.state == Task::State::kStarting;
  const std::string message =
      absl::StrCat(starting ? "did not start within " : "no report for ", silence);
  EndTask(rank, {FailureReason::kNoHeartbeat, message}, now, events);
  Advance(now, events);
}

void JobRun::MoveTask(Rank rank, const std::string& why, Instant now, Events& events) {
  Task& task = parts_.tasks.at(rank);
  if (parts_.exporter.IsWhole() || !task.placed()) return;
  if (task.live() && parts_.task_watch.IsRunDone(rank)) {
    return Assign(task, {.phase = TaskPhase::kFinish, .epoch = parts_.epochs.epoch()});
  }
  parts_.task_watch.EndUncounted(rank, {FailureReason::kNone, why}, now, events);
  Advance(now, events);
}

void JobRun::EndTask(Rank rank, const Failure& failure, Instant now, Events& events) {
  EndIf(parts_.task_watch.End(rank, failure, now, events), now, events);
}

void JobRun::EndHungTasks(Instant now, Events& events) {
  for (const auto& [rank, why] : parts_.task_watch.Hung(now)) {
    EndTask(rank, why, now, events);
    if (parts_.ended()) return;
  }
}

// ---------------------------------------------------------------- nodes and servers

void JobRun::OnNodesDied(absl::Span<const DeadNode> nodes, Instant now, Events& events) {
  if (parts_.ended()) return;
  for (const DeadNode& dead : nodes) {
    parts_.server_watch.OnDied(dead.node, dead.why, dead.fenced_at, events);
    parts_.task_watch.OnNodeDied(dead.node, dead.why, now, events);
  }
  Advance(now, events);
}

void JobRun::OnServerJoined(const ServerRef& server, absl::Span<const StoredShard> stored,
                            bool draining, Instant now, Events& events) {
  if (parts_.ended()) return;
  parts_.server_watch.OnJoined(server, stored, draining, events);
  Advance(now, events);
}

void JobRun::OnServerDraining(const ServerRef& server, bool draining, Instant now, Events& events) {
  if (parts_.ended()) return;
  parts_.shards.SetServer(server, draining);
  Advance(now, events);
}

void JobRun::OnTableReport(const NodeId& server, const TableReport& report, Instant now,
                           Events& events) {
  if (parts_.ended()) return;
  if (!parts_.server_watch.Uses(server) || parts_.shards.servers().HasFailed(server)) return;
  if (report.failure.happened()) return OnTableFailed(server, report, now, events);
  parts_.server_watch.OnReport(server, report, now);
  Advance(now, events);
}

void JobRun::OnTableFailed(const NodeId& server, const TableReport& report, Instant now,
                           Events& events) {
  const Failure& failure = report.failure;
  parts_.shards.NoteApplied(server, report.routing);
  if (parts_.server_watch.HasLostShards(failure)) {
    if (parts_.phase == JobPhase::kFinishing) return;
    parts_.server_watch.OnFailed(server, failure.message, now, events);
    return Advance(now, events);
  }
  // The server repeats the report if the table is still needed.
  if (parts_.exporter.IsWhole()) return;
  // A lack of memory is no damage of the checkpoint.
  if (failure.reason != FailureReason::kOutOfMemory &&
      parts_.server_watch.TryOlderCheckpoint(server, failure.message, now, events)) {
    return Advance(now, events);
  }
  End(JobState::kFailed, {failure.reason, absl::StrCat(server, ": ", failure.message)}, now,
      events);
}

void JobRun::Adopt(const std::string& cluster, Incarnation first_incarnation, CheckpointId floor,
                   Instant now, Events& events) {
  Restored(now, absl::ZeroDuration());
  std::set<NodeId> nodes;
  for (const ServerRef& server : parts_.routing->servers) nodes.insert(server.node);
  for (const Task& task : parts_.tasks.all()) {
    if (task.placed()) nodes.insert(task.node);
  }
  parts_.server_watch.Adopt(now);
  parts_.checkpoints.all().Abandon(absl::StrCat("its servers were of cluster ", cluster));
  parts_.checkpoints.all().SkipTo(floor);
  parts_.members.Fence(first_incarnation, now);
  std::vector<DeadNode> gone;
  for (const NodeId& node : nodes) {
    gone.push_back({node, absl::StrCat("it was of cluster ", cluster), now});
  }
  Events happened;
  OnNodesDied(gone, now, happened);
  for (Event& event : happened) {
    // All nodes of the other cluster are gone, which needs no event.
    if (std::holds_alternative<ServerLost>(event) || std::holds_alternative<TaskDied>(event)) {
      continue;
    }
    events.push_back(std::move(event));
  }
}

// ---------------------------------------------------------------- files

JobRun::Files JobRun::TakeFiles() {
  return {parts_.checkpoints.all().TakePublish(), parts_.exporter.TakePublish()};
}

void JobRun::OnCheckpointPublished(CheckpointId id, const absl::Status& status, Instant now,
                                   Events& events) {
  parts_.checkpoints.all().Published(id, status);
  parts_.checkpoints.Note(events);  // This event comes before the job goes back to the checkpoint.
  if (!parts_.ended()) Advance(now, events);
}

void JobRun::OnModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                              Events& events) {
  if (!parts_.exporter.Awaits(exporter)) return;
  ++parts_.decisions;
  parts_.exporter.OnPublished(status, events);
  Advance(now, events);
}

// ---------------------------------------------------------------- users

absl::Status JobRun::CheckTrains(Instant now) const {
  const bool late = parts_.phase == JobPhase::kExporting || parts_.phase == JobPhase::kFinishing;
  if (!parts_.ended() && !late) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(parts_.plan.id, " trains no more: ", WhyEnded(parts_, now)));
}

absl::StatusOr<CheckpointId> JobRun::AskCheckpoint(AndThen then, Instant now, Events& events) {
  const CheckpointPause& pause = parts_.checkpoints.pause();
  if (then == AndThen::kStop && pause.MustStop()) return pause.stops_after();
  CAPSTAN_RETURN_IF_ERROR(CheckTrains(now));
  const CheckpointId id =
      then == AndThen::kStop ? parts_.checkpoints.AskLast() : parts_.checkpoints.Ask();
  Advance(now, events);
  return id;
}

absl::StatusOr<CheckpointId> JobRun::AskSnapshot(uint64_t reader, Instant now, Events& events) {
  CAPSTAN_RETURN_IF_ERROR(CheckTrains(now));
  CAPSTAN_RETURN_IF_ERROR(parts_.checkpoints.all().clock().AskSnapshot(reader));
  const CheckpointId id = parts_.checkpoints.all().last_begun().Next();
  Advance(now, events);
  return id;
}

absl::Status JobRun::AskExport(const std::string& folder, Instant now, Events& events) {
  if (parts_.ended() || !parts_.exporter.IsKept()) {
    return absl::FailedPreconditionError(absl::StrCat(
        parts_.plan.id, " keeps no model that could not be written: ", WhyEnded(parts_, now)));
  }
  parts_.exporter.Ask(folder);
  ++parts_.decisions;
  ++parts_.revision;
  Advance(now, events);
  return absl::OkStatus();
}

void JobRun::EndIf(const std::optional<Failure>& failure, Instant now, Events& events) {
  if (failure) End(JobState::kFailed, *failure, now, events);
}

void JobRun::End(JobState state, const Failure& failure, Instant now, Events& events) {
  if (parts_.ended()) return;
  parts_.state = state;
  parts_.failure = failure;
  parts_.ended_at = now;
  for (const Task& task : parts_.tasks.all()) {
    if (task.placed()) parts_.tasks.End(task.rank);
  }
  parts_.checkpoints.all().Abandon("the job ended");
  parts_.checkpoints.Note(events);
  ++parts_.desired_version;
  ++parts_.revision;
  events.push_back(JobEnded{parts_.plan.id, state, failure});
}

// ---------------------------------------------------------------- time

void JobRun::Tick(Instant now, Events& events) {
  if (parts_.ended()) return;
  EndHungTasks(now, events);
  if (!parts_.ended()) parts_.task_watch.CheckLinks(now, events);
  if (!parts_.ended()) EndIf(parts_.server_watch.CheckServers(now), now, events);
  if (!parts_.ended()) EndIf(parts_.exporter.Overdue(now), now, events);
  parts_.checkpoints.all().Tick(now);
  if (!parts_.ended()) Advance(now, events);
}

Instant JobRun::NextDeadline() const {
  if (parts_.ended()) return Instant::InfiniteFuture();
  Instant next = std::min(parts_.task_watch.NextDeadline(), parts_.checkpoints.all().Limit());
  next = std::min(next, parts_.server_watch.NextDeadline());
  next = std::min(next, parts_.exporter.kept_until().value_or(next));
  const Instant tick = parts_.training_time.NextTick();
  if (tick < next && !parts_.members.Behind()) next = tick;
  // No phase goes on while shards are recovered.
  if (!parts_.server_watch.recovery().active()) {
    next = std::min({next, parts_.training.NextQuiet(), parts_.checkpoints.NextAttempt()});
  }
  if (parts_.phase != JobPhase::kFinishing) return next;
  return std::min(next, finishing_since_ + parts_.options.finish_limit);
}

void JobRun::RestartLimits(Instant now, absl::Duration rejoin) {
  if (parts_.ended()) return;
  parts_.tasks.Restored(now, rejoin);
  parts_.members.Restored(now);
  parts_.training_time.Skip(now);
  parts_.task_watch.RestartLimits(now);
  parts_.checkpoints.all().Restored(now);
  parts_.server_watch.RestartLimits(now);
  parts_.exporter.RestartLimits(now);
  finishing_since_ = now;
}

void JobRun::Restored(Instant now, absl::Duration rejoin, Generation first) {
  if (parts_.ended()) return;
  RestartLimits(now, rejoin);
  parts_.members.Restored(now, first);
  parts_.training.Restored(now);
  // Users saw fewer than this many revisions (reports) that were not stored.
  parts_.revision += kRevisionsPerIncarnation;
  ++parts_.decisions;  // Stores the new revision, to which the next incarnation adds.
}

}  // namespace capstan::scheduler
