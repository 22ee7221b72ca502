// How a job becomes quiet for a checkpoint, and how it goes on from one.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {
namespace {

// A segment's end lies this far ahead, in time: a report, its commit and the answer.
constexpr absl::Duration kSegmentNotice = absl::Seconds(1);
constexpr int64_t kSegmentMarginMin = 2;

absl::string_view ParentOf(absl::string_view folder) {
  return folder.substr(0, std::min(folder.rfind('/'), folder.size()));
}

}  // namespace

// ---------------------------------------------------------------- becoming quiet

bool JobRun::IsQuiet() const {
  if (phase_ != JobPhase::kTraining || !training_begun_) return false;
  // A part of a push of a task that died may still be on its way to a server that would take it.
  if (members_.Behind() && !Planted(PlantedBug::kTakeMomentUnfenced)) return false;
  if (plan_.mode == Mode::kBsp) {
    // A task may have begun an iteration beyond the end before it heard of it: then it is not idle.
    if (!slot_leases_->AtSegmentEnd()) return false;
  } else if (!pausing_) {
    return false;
  }
  return std::all_of(tasks_.all().begin(), tasks_.all().end(), [this](const Task& task) {
    const bool works = plan_.mode == Mode::kBsp ? !task.assignment.slots.empty()
                                                : sample_leases_->HeldCount(task.rank) > 0;
    // A paused assignment must have been made, and seen.
    const bool told = plan_.mode == Mode::kBsp || task.assignment.paused;
    return !task.live() || !works || (task.idle && told);
  });
}

// Sees to it that the job becomes quiet when the next checkpoint is due.
void JobRun::PlanQuiet(Instant now) {
  const bool due = checkpoints_.IsDue(IterationNow(), now);
  if (plan_.mode != Mode::kBsp) {
    pausing_ = due;
    return;
  }
  SlotLeases& leases = *slot_leases_;
  if (leases.furthest() > leases.segment_end()) return EndSegmentSoon(now);
  if (!leases.AtSegmentEnd()) at_segment_end_since_.reset();
  if (due && leases.AtSegmentEnd()) {
    // Not quiet: a task is at an iteration beyond it, which the others will not complete.
    if (!at_segment_end_since_) at_segment_end_since_ = now;
    segment_margin_ = std::max(segment_margin_, kSegmentMarginMin);
    if (now >= *at_segment_end_since_ + kSegmentNotice) EndSegmentSoon(now);
    return;
  }
  if (segment_margin_ > 0) {
    if (due || !leases.AtSegmentEnd()) return;
    segment_margin_ = 0;  // Nothing is due any more.
  }
  if (due) return EndSegmentSoon(now);
  // What is counted is known long before, if the last one has ended by then.
  const int64_t counted = checkpoints_.IsIdle() ? checkpoints_.DueSteps() : leases.end().value();
  const Iteration end(std::min(leases.end().value(), counted));
  if (end > leases.furthest() || end == leases.end()) leases.SetSegmentEnd(end);
}

// Tasks go on while they have not heard of the new end, and whoever is beyond it says so: then it
// is moved on, further each time.
void JobRun::EndSegmentSoon(Instant now) {
  const double iteration_samples = static_cast<double>(plan_.batch_size * plan_.slots);
  const double notice = absl::ToDoubleSeconds(kSegmentNotice);
  const auto made =
      static_cast<int64_t>(metrics_.SamplesPerSecond(now) * notice / iteration_samples);
  segment_margin_ = std::max({kSegmentMarginMin, made, 2 * segment_margin_});
  at_segment_end_since_.reset();
  const Iteration furthest = slot_leases_->furthest();
  slot_leases_->SetSegmentEnd(
      std::min(slot_leases_->end(), Iteration(furthest.value() + segment_margin_)));
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
  pausing_ = false;
  segment_margin_ = 0;
  const bool all_trained = after_checkpoint_ == After::kNextEpoch && TrainingIsOver();
  if (IsSaved() && !all_trained) return ExportAndStop(now, events);
  if (IsSaved()) stops_after_ = CheckpointId(0);  // It ends of itself.
  switch (after_checkpoint_) {
    case After::kTrainOn:
      SetPhase(JobPhase::kTraining, events);
      if (plan_.mode == Mode::kBsp) slot_leases_->SetSegmentEnd(slot_leases_->end());
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
  if (plan_.mode != Mode::kBsp) {
    next_lease_ = sample_leases_->next_id();
    for (const Rank rank : tasks_.Live()) members_.Deactivate(rank, now);
  }
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
  if (plan_.mode == Mode::kBsp) {
    at.iteration = slot_leases_->finished();
  } else {
    at.iteration = Iteration(IterationNow());
    at.untrained = sample_leases_->Undone();
    at.batches = sample_leases_->batches_done();
  }
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
  EnterTraining(at.epoch, now, events);
  const Range steps = epochs_.Steps(at.epoch);
  // Nothing of it is trained: its sums are empty already, and those of the epoch before are not it.
  const bool fresh = at.epoch_time == absl::ZeroDuration();
  metrics_ = at.metrics;
  if (fresh) metrics_.StartEpoch();
  epoch_started_ = now - at.epoch_time;
  if (plan_.mode == Mode::kBsp) {
    slot_leases_.emplace(plan_.slots, Iteration(steps.begin), Iteration(steps.end), at.iteration);
  } else if (!at.untrained.empty() || at.batches > 0) {
    sample_leases_->Resume(at.untrained, at.batches);
  }  // Else all of the epoch is to be trained: it is beyond the last one of the job that was saved.
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
