// JobRun: the phases of a job: what begins and ends them, and what tasks are assigned in each.
#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/core/job/job_run.h"

namespace capstan::scheduler {

void JobRun::Advance(Instant now, Events& events) {
  if (parts_.ended()) return;
  if (parts_.phase == JobPhase::kExporting && parts_.exporter.done()) EnterFinishing(now, events);
  EndIf(parts_.server_watch.Settle(now, events), now, events);
  if (!parts_.ended()) EndIf(parts_.task_watch.CheckWorkers(now), now, events);
  while (!parts_.ended() && !parts_.server_watch.recovery().active() && AdvancePhase(now, events)) {
  }
  if (parts_.ended()) return;
  CountTime(now);
  parts_.checkpoints.Note(events);
  RefreshAssignments();
}

// Counts the time in which the job trains, and tells servers the ticks that are over. A server that
// is behind would have all its time again with a newer membership, so there is none meanwhile.
void JobRun::CountTime(Instant now) {
  if (parts_.plan.ttl_seconds == 0) return;
  const JobTraining& training = parts_.training;
  const bool trains = parts_.phase == JobPhase::kTraining && training.begun() &&
                      !training.work().paused() && !parts_.server_watch.recovery().active();
  parts_.training_time.Count(trains, now);
  if (trains && !parts_.members.Behind()) {
    parts_.members.SetClock(parts_.training_time.ticks_seconds(), now);
  }
}

// Does the work of the phase that is possible now. Returns true if another phase was entered.
bool JobRun::AdvancePhase(Instant now, Events& events) {
  WorkLeases& work = parts_.training.work();
  switch (parts_.phase) {
    case JobPhase::kPlacing:
      if (!parts_.members.tables_ready()) return false;
      parts_.SetPhase(JobPhase::kStarting, events);
      return true;
    case JobPhase::kStarting:
      return LeaveStarting(now, events);
    case JobPhase::kTraining:
      return AdvanceTraining(now, events);
    case JobPhase::kCheckpointing:
      if (parts_.checkpoints.pause().keeping()) return KeepBest(now, events);
      if (!parts_.checkpoints.IsOver()) return false;
      LeaveCheckpoint(now, events);
      return true;
    case JobPhase::kEvaluating:
      if (work.samples().complete()) {
        FinishEvaluation(now, events);
        return true;
      }
      work.GrantEvaluation(parts_.tasks.Live());
      return false;
    case JobPhase::kExporting:
      return AdvanceExport(now, events);
    case JobPhase::kFinishing:
      AdvanceFinishing(now, events);
      return false;
    case JobPhase::kRecovering:  // Only views show it.
      return false;
  }
  return false;
}

bool JobRun::LeaveStarting(Instant now, Events& events) {
  const JobTasks& tasks = parts_.tasks;
  if (tasks.Live().empty() || tasks.CountIn(Task::State::kStarting) > 0 ||
      tasks.CountIn(Task::State::kPreparing) > 0) {
    return false;
  }
  parts_.server_watch.OnTraining();
  if (const auto& restore = parts_.server_watch.recovery().restore()) {
    ResumeAt(restore->at, now, events);
  } else {
    parts_.training.Enter(Epoch(0), nullptr, now, events);
  }
  parts_.checkpoints.all().clock().Start(parts_.training.StepsDone(), now);
  return true;
}

void JobRun::ResumeAt(const ResumePoint& at, Instant now, Events& events) {
  if (!parts_.epochs.Resume(at)) {
    // After a return the figures cover all epochs.
    if (!parts_.epochs.returned()) parts_.metrics = at.metrics;
    return EnterEnd(events);
  }
  parts_.training.Resume(at, now, events);
  if (!parts_.checkpoints.IsSaved()) return;
  parts_.checkpoints.StandWithinEpoch();
  ExportAndStop(now, events);
}

// ---------------------------------------------------------------- training and evaluation

bool JobRun::AdvanceTraining(Instant now, Events& events) {
  if (parts_.training.IsOver()) {
    if (!TakeCheckpoint(CheckpointPause::At::kEndOfTraining, now, events)) {
      FinishTraining(now, events);
    }
    return true;
  }
  if (parts_.training.IsQuiet() && TakeCheckpoint(CheckpointPause::At::kWithinEpoch, now, events)) {
    return true;
  }
  parts_.training.Advance(now);
  return false;
}

void JobRun::FinishTraining(Instant now, Events& events) {
  parts_.training.EmitReport(now, events);
  parts_.epochs.FinishTraining(parts_.metrics.epoch());
  parts_.training.Rest(now);
  if (parts_.epochs.Evaluated().empty()) {
    FinishEpoch(now, events);
  } else {
    EnterEvaluating(events);
  }
}

void JobRun::EnterEvaluating(Events& events) {
  parts_.training.work().StartEvaluation(parts_.epochs.Evaluated());
  parts_.SetPhase(JobPhase::kEvaluating, events);
}

void JobRun::FinishEvaluation(Instant now, Events& events) {
  const SampleLeases& evaluation = parts_.training.work().samples();
  std::optional<ModelTested> tested = parts_.epochs.TakeFigures(
      FiguresOf(parts_.plan.objective, evaluation.Sum(), evaluation.scores()));
  if (!tested) return FinishEpoch(now, events);
  events.push_back(*std::move(tested));
  parts_.SetPhase(JobPhase::kExporting, events);
}

void JobRun::FinishEpoch(Instant now, Events& events) {
  events.push_back(parts_.epochs.Finish(now));
  if (parts_.epochs.MustKeep()) {
    parts_.checkpoints.BeginKeeping(now);
    return parts_.SetPhase(JobPhase::kCheckpointing, events);
  }
  if (!TakeCheckpoint(CheckpointPause::At::kBetweenEpochs, now, events)) {
    EnterNextEpoch(now, events);
  }
}

void JobRun::EnterNextEpoch(Instant now, Events& events) {
  if (parts_.epochs.IsLast()) {
    EnterEnd(events);
  } else {
    parts_.training.Enter(parts_.epochs.epoch().Next(), nullptr, now, events);
  }
}

// ---------------------------------------------------------------- checkpoints

bool JobRun::TakeCheckpoint(CheckpointPause::At at, Instant now, Events& events) {
  const bool between = at == CheckpointPause::At::kBetweenEpochs;
  const int64_t steps = between ? parts_.training.StepsAtEnd() : parts_.training.StepsDone();
  if (!parts_.checkpoints.all().IsDue(steps, now)) return false;
  parts_.checkpoints.Begin(at, *parts_.routing, parts_.training.PointNow(at, now), steps, now);
  parts_.SetPhase(JobPhase::kCheckpointing, events);
  return true;
}

// The job pauses until a checkpoint of its best model is complete, and tries again after failures,
// because this model is lost when training goes on. Returns true if it left the pause.
bool JobRun::KeepBest(Instant now, Events& events) {
  const CheckpointPause::At at = parts_.checkpoints.pause().at();
  switch (parts_.checkpoints.KeepBest(now)) {
    case JobCheckpoints::Keeping::kWait:
      return false;
    case JobCheckpoints::Keeping::kBegin:
      parts_.checkpoints.Begin(at, *parts_.routing, parts_.training.PointNow(at, now),
                               parts_.training.StepsAtEnd(), now);
      return false;
    case JobCheckpoints::Keeping::kOver:
      LeaveCheckpoint(now, events);
      return true;
  }
  return false;
}

// The job goes on, whether the checkpoint was captured or abandoned.
void JobRun::LeaveCheckpoint(Instant now, Events& events) {
  using Then = CheckpointPause::Then;
  parts_.training.work().GoOn();
  switch (parts_.checkpoints.Leave()) {
    case Then::kTrainOn:
      return parts_.SetPhase(JobPhase::kTraining, events);
    case Then::kFinishTraining:
      return FinishTraining(now, events);
    case Then::kNextEpoch:
      return EnterNextEpoch(now, events);
    case Then::kExport:
      return ExportAndStop(now, events);
  }
}

void JobRun::ExportAndStop(Instant now, Events& events) {
  parts_.training.Rest(now);
  parts_.SetPhase(JobPhase::kExporting, events);
}

// ---------------------------------------------------------------- the end

// Enters the export. Before it, the job may have to return to the best model and to test it.
void JobRun::EnterEnd(Events& events) {
  if (parts_.checkpoints.MustReturn() || !parts_.epochs.StartFinalTest()) {
    return parts_.SetPhase(JobPhase::kExporting, events);
  }
  EnterEvaluating(events);
}

bool JobRun::AdvanceExport(Instant now, Events& events) {
  if (parts_.checkpoints.MustReturn()) return parts_.server_watch.ReturnToBest(now, events);
  if (!parts_.exporter.WantsWriter() || parts_.exporter.AssignWriter()) return false;
  for (const Rank rank : parts_.tasks.Live()) {
    parts_.task_watch.EndUncounted(
        rank, {FailureReason::kNone, "a later incarnation is to write the model"}, now, events);
  }
  return false;
}

// From now on the tables are not needed, so deaths of servers do not matter.
void JobRun::EnterFinishing(Instant now, Events& events) {
  parts_.server_watch.EndRecovery();
  finishing_since_ = now;
  parts_.SetPhase(JobPhase::kFinishing, events);
}

void JobRun::AdvanceFinishing(Instant now, Events& events) {
  const bool exited = parts_.tasks.CountIn(Task::State::kUnplaced) == parts_.plan.workers;
  const bool idle = parts_.checkpoints.all().state() == Checkpoints::State::kIdle;
  if ((exited && idle) || now >= finishing_since_ + parts_.options.finish_limit) {
    End(parts_.checkpoints.IsSaved() ? JobState::kStopped : JobState::kSucceeded, {}, now, events);
  }
}

// ---------------------------------------------------------------- assignments

Assignment JobRun::WantedAssignment(const Task& task) const {
  if (task.assignment.phase == TaskPhase::kFinish) return task.assignment;  // It may have exited.
  const WorkLeases& work = parts_.training.work();
  Assignment wanted;
  switch (parts_.phase) {
    case JobPhase::kPlacing:
    case JobPhase::kStarting:
    case JobPhase::kRecovering:
      break;
    case JobPhase::kTraining:
    case JobPhase::kCheckpointing:
      if (!parts_.training.IsTraining()) break;
      wanted.paused = parts_.server_watch.recovery().active() || work.paused();
      if (const Member* member = parts_.members.Find(task.rank)) {
        wanted.start_iteration = member->start_iteration;
      }
      work.AddTo(&wanted, task.rank);
      if (!wanted.slots.empty() || !wanted.samples.empty()) wanted.phase = TaskPhase::kTrain;
      break;
    case JobPhase::kEvaluating:
      wanted.samples = work.samples().HeldBy(task.rank);
      if (!wanted.samples.empty()) wanted.phase = TaskPhase::kEvaluate;
      break;
    case JobPhase::kExporting:
      parts_.exporter.AddTo(&wanted, {parts_.plan.id, task.rank, task.incarnation});
      break;
    case JobPhase::kFinishing:
      wanted.phase = TaskPhase::kFinish;
      break;
  }
  if (wanted.phase == TaskPhase::kIdle) return {};
  wanted.epoch = parts_.epochs.epoch();
  return wanted;
}

// `wanted` may have any generation.
void JobRun::Assign(Task& task, Assignment wanted) {
  wanted.generation = task.assignment.generation;
  if (wanted == task.assignment) return;
  ++wanted.generation;
  task.assignment = std::move(wanted);
  task.idle = false;  // The task reported it for the earlier assignment.
  ++parts_.decisions;
  task.contradicts_since.reset();
  task.stuck_since.reset();
  parts_.tasks.NoteChanged(task.rank);
}

void JobRun::RefreshAssignments() {
  for (Task& task : parts_.tasks.all()) {
    if (task.live()) Assign(task, WantedAssignment(task));
  }
  const Generation membership = parts_.members.membership().generation;
  const bool members_changed = std::exchange(membership_seen_, membership) != membership;
  const bool order_changed = parts_.checkpoints.TakeOrderChanged();
  if (members_changed || order_changed) ++parts_.desired_version;
}

}  // namespace capstan::scheduler
