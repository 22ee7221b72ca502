// How a job becomes quiet for a checkpoint, and how it goes on from one.
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
  // A part of a push of a task that died may still be on its way to a server that would take it.
  if (members_.Behind() && !Planted(PlantedBug::kTakeMomentUnfenced)) return false;
  return work_->IsQuiet(tasks_);
}

// Sees to it that the job becomes quiet when the next checkpoint is due.
void JobRun::PlanQuiet(Instant now) {
  // What is counted is known long before, if the last one has ended by then.
  const int64_t counted =
      checkpoints_.IsIdle() ? checkpoints_.DueSteps() : std::numeric_limits<int64_t>::max();
  work_->PlanQuiet(checkpoints_.IsDue(IterationNow(), now), counted, metrics_.SamplesPerSecond(now),
                   now);
}

// ---------------------------------------------------------------- the checkpoint

bool JobRun::TakeCheckpoint(After after, Instant now, Events& events) {
  const int64_t steps = after == After::kNextEpoch ? epochs_.Steps(epoch_).end : IterationNow();
  if (!checkpoints_.IsDue(steps, now)) return false;
  checkpoints_.Begin(*routing_, PointNow(after, now), steps, now);
  after_checkpoint_ = after;
  publish_taken_ = false;
  SetPhase(JobPhase::kCheckpointing, events);
  return true;
}

// Copied, or abandoned: the job goes on either way.
void JobRun::LeaveCheckpoint(Instant now, Events& events) {
  work_->GoOn();
  const bool all_trained = after_checkpoint_ == After::kNextEpoch && TrainingIsOver();
  if (IsSaved() && !all_trained) return ExportAndStop(now, events);
  if (IsSaved()) stops_after_ = CheckpointId(0);  // It ends of itself.
  switch (after_checkpoint_) {
    case After::kTrainOn:
      SetPhase(JobPhase::kTraining, events);
      return;
    case After::kFinishTraining:
      return FinishTraining(now, events);
    case After::kNextEpoch:
      return EnterNextEpoch(now, events);
  }
}

bool JobRun::IsSaved() const {
  const std::vector<RestoreFrom>& complete = checkpoints_.complete();
  return stops_after_ != CheckpointId(0) && !complete.empty() && complete.back().id >= stops_after_;
}

void JobRun::ExportAndStop(Instant now, Events& events) {
  RestMembers(now);
  SetPhase(JobPhase::kExporting, events);
}

ResumePoint JobRun::PointNow(After after, Instant now) const {
  ResumePoint at;
  at.results = results_;
  at.metrics = metrics_;
  at.membership = membership().generation;
  for (const Task& task : tasks_.all()) at.incarnation = std::max(at.incarnation, task.incarnation);
  if (after == After::kNextEpoch) {
    at.epoch = epoch_.Next();
    at.iteration = Iteration(epochs_.Steps(epoch_).end);
    if (at.epoch.value() < epochs_.epochs()) at.untrained = {{0, epochs_.Samples(at.epoch)}};
    return at;
  }
  at.epoch = epoch_;
  at.epoch_time = now - epoch_started_;
  work_->AddTo(&at, epoch_);
  return at;
}

void JobRun::ResumeAt(const ResumePoint& at, Instant now, Events& events) {
  if (returned_to_best_) return EnterEnd(events);  // Results and figures are those of all epochs.
  results_ = at.results;
  const bool over = at.epoch.value() >= epochs_.epochs();
  if (over || DecideBy(plan_.decide, results_).stop) {
    epoch_ = Epoch(over ? epochs_.epochs() - 1 : at.epoch.value() - 1);
    metrics_ = at.metrics;
    return EnterEnd(events);
  }
  EnterTraining(at.epoch, &at, now, events);
  // Nothing of it is trained: its sums are empty already, and those of the epoch before are not it.
  const bool fresh = at.epoch_time == absl::ZeroDuration();
  metrics_ = at.metrics;
  if (fresh) metrics_.StartEpoch();
  epoch_started_ = now - at.epoch_time;
  if (!IsSaved()) return;
  after_checkpoint_ = After::kTrainOn;
  ExportAndStop(now, events);
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
  if (stops_after_ != CheckpointId(0)) return stops_after_;
  CAPSTAN_RETURN_IF_ERROR(CheckTrains(now));
  stops_after_ = checkpoints_.last_begun().Next();
  ++decisions_;
  ++revision_;
  return AskCheckpoint(now, events);
}

absl::StatusOr<const RestoreFrom*> JobRun::FindCheckpoint(CheckpointId asked) const {
  const std::vector<RestoreFrom>& complete = checkpoints_.complete();
  if (!complete.empty() && complete.back().id >= asked) return &complete.back();
  const CheckpointId begun = checkpoints_.last_begun();
  const bool may_come = checkpoints_.IsIdle() ? checkpoints_.asked() && asked == begun.Next()
                                              : asked == begun || asked == begun.Next();
  if (may_come) return nullptr;
  if (checkpoints_.last_failed() >= asked) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", checkpoints_.last_failed().value(), " of ", plan_.id,
                     " was given up: ", checkpoints_.why_failed()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", asked.value(), " of ", plan_.id,
                   " was given up, or was never asked for: the last one is ", begun.value()));
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
         (begins_at_ && parent == ParentOf(begins_at_->folder));
}

void JobRun::OnCheckpointPublished(CheckpointId id, const absl::Status& status, Instant now,
                                   Events& events) {
  checkpoints_.Published(id, status);
  NoteCheckpoints(events);  // Before the job goes back to it.
  if (!ended()) Advance(now, events);
}

std::optional<CheckpointPublish> JobRun::TakePublish() {
  if (ended() || publish_taken_ || !checkpoints_.MustPublish()) return std::nullopt;
  publish_taken_ = true;
  return checkpoints_.ToPublish();
}

void JobRun::NoteCheckpoints(Events& events) {
  for (CheckpointEnded& ended : checkpoints_.TakeEnded()) {
    ++revision_;
    // Who wants the job to stop hears that it is not saved, and that it goes on.
    if (!ended.why.empty() && ended.id >= stops_after_) stops_after_ = CheckpointId(0);
    events.push_back(std::move(ended));
  }
  for (SnapshotTaken& taken : checkpoints_.TakeTaken()) {
    ++revision_;
    events.push_back(std::move(taken));
  }
}

}  // namespace capstan::scheduler
