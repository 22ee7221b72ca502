// JobRun: becomes quiet for a checkpoint, takes it, and resumes from one.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {
namespace {

absl::string_view ParentOf(absl::string_view folder) {
  return folder.substr(0, std::min(folder.rfind('/'), folder.size()));
}

}  // namespace

// ---------------------------------------------------------------- becoming quiet

bool JobRun::IsQuiet() const {
  if (phase_ != JobPhase::kTraining || !training_begun_) return false;
  // A server that does not know the newest membership may still accept a push of a dead task.
  if (members_.Behind() && !Planted(PlantedBug::kTakeMomentUnfenced)) return false;
  return work_->IsQuiet(tasks_);
}

// Makes the job quiet when the next checkpoint is due.
void JobRun::PlanQuiet(Instant now) {
  // A checkpoint that is due after a number of iterations is known long before, if the last
  // checkpoint has ended.
  const int64_t counted =
      checkpoints_.IsIdle() ? checkpoints_.DueSteps() : std::numeric_limits<int64_t>::max();
  work_->PlanQuiet(checkpoints_.IsDue(IterationNow(), now), counted, metrics_.SamplesPerSecond(now),
                   now);
}

// ---------------------------------------------------------------- the checkpoint

bool JobRun::TakeCheckpoint(CheckpointPause::At at, Instant now, Events& events) {
  const bool between = at == CheckpointPause::At::kBetweenEpochs;
  const int64_t steps = between ? StepsEnd() : IterationNow();
  if (!checkpoints_.IsDue(steps, now)) return false;
  checkpoints_.Begin(*routing_, PointNow(at, now), steps, now);
  pause_.Begin(at);
  SetPhase(JobPhase::kCheckpointing, events);
  return true;
}

// The job goes on, whether the checkpoint was captured or abandoned.
void JobRun::LeaveCheckpoint(Instant now, Events& events) {
  using Then = CheckpointPause::Then;
  work_->GoOn();
  const bool between = pause_.at() == CheckpointPause::At::kBetweenEpochs;
  switch (pause_.Leave(checkpoints_, between && epochs_.IsLast())) {
    case Then::kTrainOn:
      return SetPhase(JobPhase::kTraining, events);
    case Then::kFinishTraining:
      return FinishTraining(now, events);
    case Then::kNextEpoch:
      return EnterNextEpoch(now, events);
    case Then::kExport:
      return ExportAndStop(now, events);
  }
}

void JobRun::ExportAndStop(Instant now, Events& events) {
  RestMembers(now);
  SetPhase(JobPhase::kExporting, events);
}

ResumePoint JobRun::PointNow(CheckpointPause::At moment, Instant now) const {
  ResumePoint at;
  at.metrics = metrics_;
  at.membership = membership().generation;
  for (const Task& task : tasks_.all()) at.incarnation = std::max(at.incarnation, task.incarnation);
  if (moment == CheckpointPause::At::kBetweenEpochs) {
    epochs_.AddTo(&at, JobEpochs::Moment::kAfter, now);
  } else {
    epochs_.AddTo(&at, JobEpochs::Moment::kWithin, now);
    work_->AddTo(&at, epochs_.epoch());
  }
  return at;
}

void JobRun::ResumeAt(const ResumePoint& at, Instant now, Events& events) {
  if (!epochs_.Resume(at)) {
    if (!epochs_.returned()) metrics_ = at.metrics;  // Else metrics_ covers all epochs.
    return EnterEnd(events);
  }
  EnterTraining(at.epoch, &at, now, events);
  // If no part of the epoch is trained, the checkpoint's sums are those of the epoch before.
  const bool fresh = at.epoch_time == absl::ZeroDuration();
  metrics_ = at.metrics;
  if (fresh) metrics_.StartEpoch();
  if (!IsSaved()) return;
  pause_.Begin(CheckpointPause::At::kWithinEpoch);
  ExportAndStop(now, events);
}

// The job pauses until a checkpoint of its best model is complete, and tries again after failures,
// because this model is lost when training goes on. Returns true if it left the pause.
bool JobRun::KeepBest(Instant now, Events& events) {
  if (!checkpoints_.IsIdle()) return false;
  const std::vector<RestoreFrom>& complete = checkpoints_.complete();
  const bool kept = !complete.empty() && complete.back().at.epoch == epochs_.epoch().Next() &&
                    complete.back().at.results.size() == epochs_.results().size();
  if (!kept && pause_.MayTryAgain()) {
    if (!pause_.TryAgain(now)) return false;
    ++decisions_;
    checkpoints_.Ask();
    checkpoints_.Begin(*routing_, PointNow(pause_.at(), now), StepsEnd(), now);
    return false;
  }
  if (kept) checkpoints_.KeepNewest();
  pause_.EndKeeping();
  LeaveCheckpoint(now, events);
  return true;
}

// ---------------------------------------------------------------- on request, ends

absl::Status JobRun::CheckTrains(Instant now) const {
  const bool late = phase_ == JobPhase::kExporting || phase_ == JobPhase::kFinishing;
  if (!ended() && !late) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(plan_.id, " trains no more: ", ended() ? "it has ended" : Detail(now)));
}

absl::StatusOr<CheckpointId> JobRun::AskCheckpoint(Instant now, Events& events) {
  CAPSTAN_RETURN_IF_ERROR(CheckTrains(now));
  checkpoints_.Ask();
  const CheckpointId id = checkpoints_.last_begun().Next();
  Advance(now, events);
  return id;
}

absl::StatusOr<CheckpointId> JobRun::SaveAndStop(Instant now, Events& events) {
  if (pause_.MustStop()) return pause_.stops_after();
  CAPSTAN_RETURN_IF_ERROR(CheckTrains(now));
  pause_.StopAfter(checkpoints_.last_begun().Next());
  ++decisions_;
  ++revision_;
  return AskCheckpoint(now, events);
}

absl::StatusOr<CheckpointId> JobRun::AskSnapshot(uint64_t reader, Instant now, Events& events) {
  CAPSTAN_RETURN_IF_ERROR(CheckTrains(now));
  CAPSTAN_RETURN_IF_ERROR(checkpoints_.AskSnapshot(reader));
  const CheckpointId id = checkpoints_.last_begun().Next();
  Advance(now, events);
  return id;
}

bool JobRun::MayGoBackTo(const std::string& folder) const {
  if (ended()) return false;
  const absl::string_view parent = ParentOf(folder);
  return parent == plan_.checkpoint_folder ||
         (recovery_.begins_at() && parent == ParentOf(recovery_.begins_at()->folder));
}

void JobRun::OnCheckpointPublished(CheckpointId id, const absl::Status& status, Instant now,
                                   Events& events) {
  checkpoints_.Published(id, status);
  NoteCheckpoints(events);  // This event comes before the job goes back to the checkpoint.
  if (!ended()) Advance(now, events);
}

void JobRun::NoteCheckpoints(Events& events) {
  for (CheckpointEnded& ended : checkpoints_.TakeEnded()) {
    ++revision_;
    pause_.OnEnded(ended);
    events.push_back(std::move(ended));
  }
  for (SnapshotTaken& taken : checkpoints_.TakeTaken()) {
    ++revision_;
    events.push_back(std::move(taken));
  }
}

}  // namespace capstan::scheduler
