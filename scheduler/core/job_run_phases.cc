// JobRun: the phases of a job: their ends, their leases and their active tasks.
#include <algorithm>

#include "common/planted/planted_bug.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {

void JobRun::Advance(Instant now, Events& events) {
  if (!ended() && phase_ == JobPhase::kExporting && export_.done()) EnterFinishing(now, events);
  SettleShards(now, events);
  CheckWorkers(now, events);
  while (!ended() && !recovery_.active() && AdvancePhase(now, events)) {
  }
  if (ended()) return;
  NoteCheckpoints(events);
  RefreshAssignments();
}

// Does the work of the phase that is possible now. Returns true if another phase was entered.
bool JobRun::AdvancePhase(Instant now, Events& events) {
  switch (phase_) {
    case JobPhase::kPlacing:
      if (!members_.tables_ready()) return false;
      SetPhase(JobPhase::kStarting, events);
      return true;
    case JobPhase::kStarting:
      if (tasks_.Live().empty() || tasks_.CountIn(Task::State::kStarting) > 0 ||
          tasks_.CountIn(Task::State::kPreparing) > 0) {
        return false;
      }
      recovery_.OnTraining();
      if (recovery_.restore()) {
        ResumeAt(recovery_.restore()->at, now, events);
      } else {
        EnterTraining(Epoch(0), nullptr, now, events);
      }
      checkpoints_.StartClock(IterationNow(), now);
      return true;
    case JobPhase::kTraining:
      // What is copied between here and the next epoch must not miss a part of a late push.
      if (work_->trained() &&
          (members_.AreDeadFenced() || Planted(PlantedBug::kTakeMomentUnfenced))) {
        if (TakeCheckpoint(CheckpointPause::At::kEndOfTraining, now, events)) return true;
        FinishTraining(now, events);
        return true;
      }
      if (IsQuiet() && TakeCheckpoint(CheckpointPause::At::kWithinEpoch, now, events)) return true;
      if (training_begun_ || BeginTraining(now)) AdvanceTraining(now);
      return false;
    case JobPhase::kCheckpointing:
      if (pause_.keeping()) return KeepBest(now, events);
      if (!pause_.IsOver(checkpoints_)) return false;
      LeaveCheckpoint(now, events);
      return true;
    case JobPhase::kEvaluating:
      if (work_->evaluation().complete()) {
        FinishEvaluation(now, events);
        return true;
      }
      work_->GrantEvaluation(tasks_.Live());
      return false;
    case JobPhase::kExporting:
      if (MustReturn()) return ReturnToBest(now, events);
      if (const std::vector<Rank> live = tasks_.Live(); export_.WantsWriter() && !live.empty()) {
        export_.Assign(live.front());
      }
      return false;
    case JobPhase::kFinishing:
      if ((tasks_.CountIn(Task::State::kUnplaced) == plan_.workers && checkpoints_.IsIdle()) ||
          now >= finishing_since_ + options_.finish_limit) {
        End(IsSaved() ? JobState::kStopped : JobState::kSucceeded, {}, now, events);
      }
      return false;
    case JobPhase::kRecovering:  // phase_ is never kRecovering, which only views show.
      return false;
  }
  return false;
}

// From now on the tables are not needed, so deaths of servers do not matter.
void JobRun::EnterFinishing(Instant now, Events& events) {
  recovery_.End();
  finishing_since_ = now;
  SetPhase(JobPhase::kFinishing, events);
}

void JobRun::SetPhase(JobPhase phase, Events& events) {
  phase_ = phase;
  ++decisions_;
  ++revision_;
  events.push_back(PhaseStarted{plan_.id, phase, epochs_.epoch()});
}

// ---------------------------------------------------------------- training

void JobRun::EnterTraining(Epoch epoch, const ResumePoint* from, Instant now, Events& events) {
  const double factor = epochs_.Start(epoch, from == nullptr ? now : now - from->epoch_time);
  members_.SetLearningRateFactor(factor, now);
  training_begun_ = false;
  metrics_.StartEpoch();
  for (Task& task : tasks_.all()) task.rate.Begin();
  work_->StartTraining(epoch, from);
  SetPhase(JobPhase::kTraining, events);
}

// Activates all live tasks at one iteration when all servers know them as inactive. Returns true
// when that is done.
bool JobRun::BeginTraining(Instant now) {
  const std::vector<Rank> live = tasks_.Live();
  const bool possible = std::all_of(live.begin(), live.end(), [this](Rank rank) {
    return members_.IsActive(rank) || members_.MayActivate(rank);
  });
  if (live.empty() || !possible || !members_.HasLearningRate()) return false;
  training_begun_ = true;
  ActivateJoiners(now);
  return true;
}

// Activates tasks that joined, and tasks that were deactivated when there was no work for them.
void JobRun::ActivateJoiners(Instant now) {
  if (!work_->HasWorkForMore()) return;
  const Iteration start = tasks_.HighestIteration();
  for (const Rank rank : tasks_.Live()) {
    if (!members_.MayActivate(rank)) continue;
    members_.Activate(rank, work_->has_task_clocks() ? start : Iteration(0), now);
    Task& task = tasks_.at(rank);
    task.iterations = std::max(task.iterations, start);
  }
}

std::vector<Rank> JobRun::ReadyRanks() const {
  std::vector<Rank> ready = tasks_.Live();
  std::erase_if(ready, [this](Rank rank) { return !members_.IsReady(rank); });
  return ready;
}

void JobRun::AdvanceTraining(Instant now) {
  PlanQuiet(now);
  if (!work_->paused()) GrantTraining(now);
}

void JobRun::GrantTraining(Instant now) {
  ActivateJoiners(now);
  work_->Grant(ReadyRanks(), tasks_);
  DeactivateWorkless(now);
}

// Deactivates tasks without work, because the SSP rule must not wait for them.
void JobRun::DeactivateWorkless(Instant now) {
  if (work_->HasWorkForMore()) return;
  for (const Rank rank : tasks_.Live()) {
    if (!work_->HasUnfinished(rank)) members_.Deactivate(rank, now);
  }
}

void JobRun::RestMembers(Instant now) {
  if (!work_->has_task_clocks()) return;
  for (const Rank rank : tasks_.Live()) members_.Deactivate(rank, now);
}

void JobRun::FinishTraining(Instant now, Events& events) {
  EmitReport(now, events);
  epochs_.FinishTraining(metrics_.epoch());
  RestMembers(now);
  if (epochs_.Evaluated().empty()) {
    FinishEpoch(now, events);
  } else {
    EnterEvaluating(events);
  }
}

// ---------------------------------------------------------------- evaluation

void JobRun::EnterEvaluating(Events& events) {
  work_->StartEvaluation(epochs_.Evaluated());
  SetPhase(JobPhase::kEvaluating, events);
}

void JobRun::FinishEvaluation(Instant now, Events& events) {
  std::optional<ModelTested> tested = epochs_.TakeFigures(
      FiguresOf(plan_.objective, work_->evaluation().Sum(), work_->evaluation().scores()));
  if (!tested) return FinishEpoch(now, events);
  events.push_back(*std::move(tested));
  SetPhase(JobPhase::kExporting, events);
}

void JobRun::FinishEpoch(Instant now, Events& events) {
  events.push_back(epochs_.Finish(now));
  if (epochs_.MustKeep()) {
    pause_.BeginKeeping(now);
    return SetPhase(JobPhase::kCheckpointing, events);
  }
  if (!TakeCheckpoint(CheckpointPause::At::kBetweenEpochs, now, events))
    EnterNextEpoch(now, events);
}

void JobRun::EnterNextEpoch(Instant now, Events& events) {
  if (epochs_.IsLast()) {
    EnterEnd(events);
  } else {
    EnterTraining(epochs_.epoch().Next(), nullptr, now, events);
  }
}

// Enters the export. Before it, the job may have to return to the best model and to test it.
void JobRun::EnterEnd(Events& events) {
  if (MustReturn() || !epochs_.StartFinalTest()) return SetPhase(JobPhase::kExporting, events);
  EnterEvaluating(events);
}

// Goes back to the best epoch's checkpoint, as after a loss of all shards, but does not train
// again. Returns false if there are too few servers now.
bool JobRun::ReturnToBest(Instant now, Events& events) {
  epochs_.ReturnTo(*checkpoints_.kept());
  if (!GoBack(now, events)) {
    epochs_.CancelReturn();
    return false;
  }
  recovery_.Placed(now);
  TakeRouting(now, events);
  return true;
}

// ---------------------------------------------------------------- assignments

Assignment JobRun::WantedAssignment(const Task& task) const {
  Assignment wanted;
  switch (phase_) {
    case JobPhase::kPlacing:
    case JobPhase::kStarting:
    case JobPhase::kRecovering:
      break;
    case JobPhase::kTraining:
    case JobPhase::kCheckpointing:
      if (!training()) break;
      wanted.paused = recovery_.active() || work_->paused();
      wanted.start_iteration = members_.StartIteration(task.rank);
      work_->AddTo(&wanted, task.rank);
      if (!wanted.slots.empty() || !wanted.samples.empty()) wanted.phase = TaskPhase::kTrain;
      break;
    case JobPhase::kEvaluating:
      wanted.samples = work_->evaluation().HeldBy(task.rank);
      if (!wanted.samples.empty()) wanted.phase = TaskPhase::kEvaluate;
      break;
    case JobPhase::kExporting:
      export_.AddTo(&wanted, {plan_.id, task.rank, task.incarnation});
      break;
    case JobPhase::kFinishing:
      wanted.phase = TaskPhase::kFinish;
      break;
  }
  if (wanted.phase == TaskPhase::kIdle) return {};
  wanted.epoch = epochs_.epoch();
  return wanted;
}

void JobRun::RefreshAssignments() {
  for (Task& task : tasks_.all()) {
    if (!task.live()) continue;
    Assignment wanted = WantedAssignment(task);
    wanted.generation = task.assignment.generation;
    if (wanted == task.assignment) continue;
    ++wanted.generation;
    task.assignment = wanted;
    task.idle = false;  // The task reported it for the earlier assignment.
    ++decisions_;
    task.contradicts_since.reset();
    task.stuck_since.reset();
    changed_assignments_.insert(task.rank);
  }
  const CheckpointId order = checkpoints_.order().id;
  if (membership().generation == membership_seen_ && order == order_seen_) return;
  membership_seen_ = membership().generation;
  order_seen_ = order;
  ++desired_version_;
}

}  // namespace capstan::scheduler
