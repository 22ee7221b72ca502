#include "scheduler/core/job/parts/task_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "common/time/duration_text.h"

namespace capstan::scheduler {
namespace {

bool HasGoneOn(const Activity& before, const Activity& now) {
  if (Planted(PlantedBug::kTakeBusyForHung)) return false;
  return now.what != before.what || now.done > before.done;
}

}  // namespace

std::string TextOf(const Activity& activity) {
  if (activity.what.empty()) return "";
  return absl::StrCat(" (", activity.done, " ", activity.what, ")");
}

void TaskWatch::Place(Rank rank, Incarnation incarnation, const NodeId& node,
                      const std::string& address, Instant now, Events& events) {
  const bool restart = job_.tasks.at(rank).incarnation > Incarnation(0);
  if (restart) ++restarts_;
  job_.tasks.Place(rank, incarnation, node, address, now);
  job_.members.Add(rank, incarnation, now);
  events.push_back(TaskPlaced{{job_.plan.id, rank, incarnation}, node, restart});
  ++job_.desired_version;
  ++job_.revision;
}

// ---------------------------------------------------------------- reports

absl::Status TaskWatch::Validate(const TaskReport& report) const {
  const TaskTotals& totals = report.totals;
  absl::Status status = CheckCount("iterations", report.iterations.value());
  status.Update(CheckTotals(totals.samples, totals.correct, totals.staleness_counts,
                            totals.rows_cached, totals.rows_pulled));
  status.Update(CheckCount("activity.done", report.activity.done));
  if (status.ok()) return training_.work().Validate(report);
  return absl::InvalidArgumentError(
      absl::StrCat(report.task.job, " task ", report.task.rank.value(), ": ", status.message()));
}

// An older report does no harm, because all figures only grow.
absl::Status TaskWatch::OnReport(const TaskReport& report, Instant now) {
  Task* const found = job_.tasks.FindIncarnation(report.task.rank, report.task.incarnation);
  if (found == nullptr) {
    return absl::AbortedError(absl::StrCat(report.task.job, " task ", report.task.rank.value(),
                                           ": incarnation ", report.task.incarnation.value(),
                                           " is not wanted any more"));
  }
  CAPSTAN_RETURN_IF_ERROR(Validate(report));
  Task& task = *found;
  job_.tasks.Renew(task, report.preparing, now);
  ++job_.revision;
  bool moved = report.totals.samples > task.totals.samples || report.iterations > task.iterations ||
               HasGoneOn(task.activity, report.activity);
  task.iterations = std::max(task.iterations, report.iterations);
  task.assignment_seen = std::max(task.assignment_seen, report.assignment_seen);
  task.idle = task.live() && report.idle && report.assignment_seen == task.assignment.generation;
  task.wait = report.wait;
  links_.OnReport(task.rank, task.node, task.wait.silent, now);
  task.activity = report.activity;
  if (training_.OnReport(task, report, now)) moved = true;
  const bool current = report.assignment_seen == task.assignment.generation;
  if (report.exported && current && exporter_.writer() == task.rank &&
      exporter_.OnWritten(report.task)) {
    ++job_.decisions;
  }
  if (!report.failure.happened()) NoteContradiction(task, moved, now);
  return absl::OkStatus();
}

void TaskWatch::NoteContradiction(Task& task, bool moved, Instant now) {
  const bool works = HasUnfinishedWork(task);
  if (!task.idle || !works) {
    task.contradicts_since.reset();
  } else if (!task.contradicts_since) {
    task.contradicts_since = now;
  }
  // A program at its own pace may work for any time without reporting progress.
  const bool thinks = job_.plan.own_pace && task.assignment.phase == TaskPhase::kTrain;
  if (moved || !works || thinks || !task.wait.what.empty()) {
    task.stuck_since.reset();
  } else if (!task.stuck_since) {
    task.stuck_since = now;
  }
}

bool TaskWatch::HasUnfinishedWork(const Task& task) const {
  if (task.preparing() || task.assignment.phase == TaskPhase::kFinish) return true;
  if (task.assignment.paused) return false;
  switch (job_.phase) {
    case JobPhase::kTraining:
      return training_.work().HasUnfinished(task.rank);
    case JobPhase::kEvaluating:
      return training_.work().samples().HeldCount(task.rank) > 0;
    case JobPhase::kExporting:
      return exporter_.HasWork(task.rank);
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

bool TaskWatch::IsRunDone(Rank rank) const {
  return job_.plan.own_pace && job_.phase != JobPhase::kExporting &&
         training_.HasLeases(SampleLeases::Use::kTrain) &&
         training_.work().samples().IsDone(rank.value());
}

bool TaskWatch::IsNeeded(Rank rank) const {
  if (job_.tasks.at(rank).assignment.phase == TaskPhase::kFinish) return false;
  return !IsRunDone(rank) && exporter_.IsNeeded(rank);
}

// ---------------------------------------------------------------- ends

std::optional<Failure> TaskWatch::End(Rank rank, const Failure& why, Instant now, Events& events) {
  const bool counted = IsNeeded(rank);
  EndIncarnation(rank, why, counted, now, events);
  if (!counted) return std::nullopt;
  if (!first_failure_.happened()) first_failure_ = {why.reason, last_death_};
  if (++crashes_ <= job_.plan.max_restarts) return std::nullopt;
  return Failure{first_failure_.reason,
                 absl::StrCat(first_failure_.message, " (the first of ", crashes_,
                              " crashes; max_restarts is ", job_.plan.max_restarts, ")")};
}

void TaskWatch::EndUncounted(Rank rank, const Failure& why, Instant now, Events& events) {
  EndIncarnation(rank, why, /*counted=*/false, now, events);
}

void TaskWatch::EndIncarnation(Rank rank, const Failure& why, bool counted, Instant now,
                               Events& events) {
  const Task& task = job_.tasks.at(rank);
  events.push_back(TaskDied{{job_.plan.id, rank, task.incarnation}, task.node, why, counted});
  last_death_ = absl::StrCat("task ", rank.value(), " on ", task.node, ": ", why.message);
  job_.members.Remove(rank, now);
  if (!Planted(PlantedBug::kLoseLeaseOfTheDead)) training_.work().Return(rank);
  exporter_.OnTaskEnded(rank);
  job_.tasks.End(rank);
  links_.OnTaskEnded(rank);
  job_.tasks.at(rank).let_go = !why.happened();
  ++job_.desired_version;
  ++job_.revision;
}

void TaskWatch::OnNodeDied(const NodeId& node, const std::string& why, Instant now,
                           Events& events) {
  links_.OnNodeDied(node);
  for (const Rank rank : job_.tasks.OnNode(node)) {
    const std::string message = absl::StrCat(node, " is gone: ", why);
    EndUncounted(rank, {FailureReason::kNoHeartbeat, message}, now, events);
  }
}

std::vector<TaskWatch::Hanging> TaskWatch::Hung(Instant now) const {
  std::vector<Hanging> hung;
  for (const Task& task : job_.tasks.all()) {
    std::string why;
    if (task.contradicts_since &&
        now >= *task.contradicts_since + job_.options.contradiction_limit) {
      why = "it says that it is idle, and has not reported its work done";
    } else if (task.stuck_since && now >= *task.stuck_since + job_.options.task_progress_limit) {
      why = absl::StrCat("it has not moved on with ",
                         task.preparing() ? "its preparation" : "its work", " for ",
                         DurationText(now - *task.stuck_since), TextOf(task.activity),
                         ", and names nothing that it waits for");
    } else {
      continue;
    }
    hung.push_back({task.rank, {FailureReason::kHang, why}});
  }
  return hung;
}

std::optional<Failure> TaskWatch::CheckWorkers(Instant now) {
  if (exporter_.IsWhole() || job_.tasks.CountIn(Task::State::kUnplaced) < job_.plan.workers) {
    without_worker_since_.reset();
    return std::nullopt;
  }
  if (!without_worker_since_) without_worker_since_ = now;
  if (now < *without_worker_since_ + job_.plan.worker_wait) return std::nullopt;
  std::string message =
      absl::StrCat("no live worker task for ", DurationText(now - *without_worker_since_));
  if (!last_death_.empty()) absl::StrAppend(&message, "; the last to die was ", last_death_);
  return Failure{FailureReason::kNoHeartbeat, message};
}

// ---------------------------------------------------------------- dead links

void TaskWatch::CheckLinks(Instant now, Events& events) {
  if (exporter_.IsWhole()) return;
  links_.Expire(now);
  for (const DeadLinks::Silence& silence : links_.Overdue(now)) {
    if (!links_.IsSilent(silence.rank, silence.link.server)) continue;  // The silence has ended.
    if (Planted(PlantedBug::kTrustEveryLink) ||
        !job_.shards.Primaries().contains(silence.link.server)) {
      // The server's shards are lost, or move to other servers.
      links_.Excuse(silence.rank, silence.link.server, now);
    } else {
      LeaveDeadLink(silence, now, events);
    }
  }
  job_.shards.SetAvoided(links_.AvoidedServers());
}

bool TaskWatch::IsReached(const DeadLinks::Link& link) const {
  const std::vector<Rank> live = job_.tasks.Live();
  return std::any_of(live.begin(), live.end(), [&](Rank rank) {
    return job_.tasks.at(rank).node != link.worker && !links_.IsSilent(rank, link.server) &&
           !IsRunDone(rank);  // Such a task calls no server.
  });
}

void TaskWatch::LeaveDeadLink(const DeadLinks::Silence& silence, Instant now, Events& events) {
  using Avoid = DeadLinks::Avoid;
  const auto& [worker, server] = silence.link;
  ShardMap& shards = job_.shards;
  shards.SetAvoided(links_.AvoidedServers());
  if (!shards.servers().HasAnother(server) && links_.ForgetAvoidedServers()) {
    shards.SetAvoided(links_.AvoidedServers());
  }
  const bool reached = IsReached(silence.link);
  const auto before = links_.JudgementOf(silence.link);
  // In BSP without replicas or a log, only the server itself has the pushes of an incomplete
  // iteration. Its shards cannot leave before the rest of these pushes arrives. So the task first
  // moves to another worker, as soon as one has a free slot.
  const bool waits_for_pushes =
      job_.plan.consistency.synchronous() && job_.plan.replicas == 0 && !job_.plan.log;
  const bool shards_move =
      !reached && shards.servers().HasAnother(server) && (before || !waits_for_pushes);
  const bool on_their_way = before == Avoid::kServer || (before == Avoid::kBoth && !reached);
  // Nothing can be done if shards or task are moving already, or if the task is back from another
  // worker and the shards cannot move.
  if (on_their_way || (before && !reached && !shards_move)) {
    return links_.Excuse(silence.rank, server, now);
  }
  if (!before || shards_move) {
    const Avoid leaving = waits_for_pushes ? Avoid::kBoth : Avoid::kServer;
    links_.Judge(silence.link, shards_move ? leaving : Avoid::kWorker, now);
    events.push_back(LinkDied{job_.plan.id, worker, server, shards_move});
    ++job_.revision;
  }
  if (shards_move) return links_.Excuse(silence.rank, server, now);
  const std::string why =
      absl::StrCat("it cannot reach ", server, reached ? ", which other tasks reach" : "");
  EndUncounted(silence.rank, {FailureReason::kNone, why}, now, events);
}

// ---------------------------------------------------------------- time

Instant TaskWatch::NextDeadline() const {
  Instant next = job_.tasks.NextDeadline();
  for (const Task& task : job_.tasks.all()) {
    if (task.contradicts_since) {
      next = std::min(next, *task.contradicts_since + job_.options.contradiction_limit);
    }
    if (task.stuck_since) {
      next = std::min(next, *task.stuck_since + job_.options.task_progress_limit);
    }
  }
  if (without_worker_since_) {
    next = std::min(next, *without_worker_since_ + job_.plan.worker_wait);
  }
  if (exporter_.IsWhole()) return next;
  return std::min(next, links_.NextDeadline());
}

void TaskWatch::RestartLimits(Instant now) {
  links_.RestartLimits(now);
  if (without_worker_since_) without_worker_since_ = now;
}

}  // namespace capstan::scheduler
