#include "scheduler/core/checkpoints/checkpoint_pause.h"

#include <vector>

#include "absl/time/time.h"

namespace capstan::scheduler {

bool CheckpointPause::IsOver(const Checkpoints& checkpoints) const {
  const bool is_last = MustStop() && checkpoints.last_begun() >= stops_after_;
  return is_last ? checkpoints.state() == Checkpoints::State::kIdle
                 : checkpoints.state() != Checkpoints::State::kCapturing;
}

CheckpointPause::Then CheckpointPause::Leave(const Checkpoints& checkpoints, bool all_trained) {
  if (IsSaved(checkpoints) && !all_trained) return Then::kExport;
  if (IsSaved(checkpoints)) stops_after_ = CheckpointId(0);  // The job ends without a stop.
  switch (at_) {
    case At::kWithinEpoch:
      return Then::kTrainOn;
    case At::kEndOfTraining:
      return Then::kFinishTraining;
    case At::kBetweenEpochs:
      break;
  }
  return Then::kNextEpoch;
}

// If the job's last checkpoint was given up, the job goes on, and the event reports it to the user.
void CheckpointPause::OnEnded(const CheckpointEnded& ended) {
  if (!ended.why.empty() && ended.id >= stops_after_) stops_after_ = CheckpointId(0);
}

bool CheckpointPause::IsSaved(const Checkpoints& checkpoints) const {
  const std::vector<RestoreFrom>& complete = checkpoints.complete().all();
  return MustStop() && !complete.empty() && complete.back().id >= stops_after_;
}

void CheckpointPause::BeginKeeping(Instant now) {
  at_ = At::kBetweenEpochs;
  keeping_ = Keeping{.attempts = 0, .next = now};
}

bool CheckpointPause::MayTryAgain() const { return keeping_->attempts < kKeepAttemptsMax; }

bool CheckpointPause::TryAgain(Instant now) {
  if (now < keeping_->next) return false;
  keeping_->next = now + absl::Seconds(1) * (1 << keeping_->attempts);
  ++keeping_->attempts;
  return true;
}

Instant CheckpointPause::NextAttempt() const {
  return keeping_ ? keeping_->next : Instant::InfiniteFuture();
}

}  // namespace capstan::scheduler
