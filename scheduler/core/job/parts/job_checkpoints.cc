#include "scheduler/core/job/parts/job_checkpoints.h"

#include <utility>
#include <vector>

namespace capstan::scheduler {

// ---------------------------------------------------------------- requests

CheckpointId JobCheckpoints::Ask() {
  checkpoints_.clock().Ask();
  return checkpoints_.last_begun().Next();
}

CheckpointId JobCheckpoints::AskLast() {
  pause_.StopAfter(checkpoints_.last_begun().Next());
  ++job_.decisions;
  ++job_.revision;
  return Ask();
}

// ---------------------------------------------------------------- the pause

void JobCheckpoints::Begin(CheckpointPause::At at, const Routing& routing, const ResumePoint& point,
                           int64_t steps, Instant now) {
  checkpoints_.Begin(routing, point, steps, now);
  pause_.Begin(at);
}

CheckpointPause::Then JobCheckpoints::Leave() {
  return pause_.Leave(checkpoints_, IsBetweenEpochs() && job_.epochs.IsLast());
}

// The job tries again after failures.
JobCheckpoints::Keeping JobCheckpoints::KeepBest(Instant now) {
  if (checkpoints_.state() != Checkpoints::State::kIdle) return Keeping::kWait;
  const std::vector<RestoreFrom>& complete = checkpoints_.complete().all();
  const bool kept = !complete.empty() && complete.back().at.epoch == job_.epochs.epoch().Next() &&
                    complete.back().at.results.size() == job_.epochs.results().size();
  if (!kept && pause_.MayTryAgain()) {
    if (!pause_.TryAgain(now)) return Keeping::kWait;
    ++job_.decisions;
    checkpoints_.clock().Ask();
    return Keeping::kBegin;
  }
  if (kept) checkpoints_.complete().KeepNewest();
  pause_.EndKeeping();
  return Keeping::kOver;
}

// ---------------------------------------------------------------- failures

void JobCheckpoints::GoBack(const std::string& why) {
  checkpoints_.Abandon(why);
  pause_.EndKeeping();
}

void JobCheckpoints::Forget(CheckpointId id) {
  checkpoints_.complete().Forget(id);
  job_.epochs.CancelReturn();
  if (pause_.MustStop()) checkpoints_.clock().Ask();
}

absl::Status JobCheckpoints::Check() const {
  absl::Status status = checkpoints_.Check(job_.plan, job_.routing->shards.size());
  if (pause_.keeping() && !IsBetweenEpochs()) {
    status.Update(absl::DataLossError("it keeps a model within an epoch, expected between epochs"));
  }
  return status;
}

// ---------------------------------------------------------------- others

void JobCheckpoints::Note(Events& events) {
  Checkpoints::Ends ends = checkpoints_.TakeEnds();
  for (CheckpointEnded& ended : ends.checkpoints) {
    ++job_.revision;
    pause_.OnEnded(ended);
    events.push_back(std::move(ended));
  }
  for (SnapshotTaken& taken : ends.snapshots) {
    ++job_.revision;
    events.push_back(std::move(taken));
  }
}

bool JobCheckpoints::TakeOrderChanged() {
  const CheckpointId before = std::exchange(order_seen_, checkpoints_.order().id);
  return order_seen_ != before;
}

Instant JobCheckpoints::NextAttempt() const {
  const bool idle = checkpoints_.state() == Checkpoints::State::kIdle;
  return idle ? pause_.NextAttempt() : Instant::InfiniteFuture();
}

}  // namespace capstan::scheduler
