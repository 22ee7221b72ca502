// CheckpointPause: how a job stands still for a checkpoint or a snapshot: where in its training it
// stands, and what it does afterwards. Checkpoints says how far the checkpoint itself is.
//
//   TRAINING --Begin, one is due and all is quiet--> STANDING --IsOver, Leave--> trains on, or ends
//   the epoch, or begins the next one; if it was to be saved, and is: exports and stops
//   between epochs --BeginKeeping: its model is the best so far--> KEEPING, until a checkpoint of
//   it is complete, or kKeepAttemptsMax were given up --Leave--> the next epoch
//
// To stop a job, a user names the checkpoint after which it ends (StopAfter). If that checkpoint is
// given up, the job trains on.
// Owned by JobCheckpoints. Pure: no clock; the time comes in. Thread safety: thread-compatible.
// Invariant: a job that IsSaved trains no more.
#ifndef CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINT_PAUSE_H_
#define CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINT_PAUSE_H_

#include <optional>

#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/checkpoints/checkpoints.h"
#include "scheduler/core/messages/loaded_check.h"

namespace capstan::scheduler {

class CheckpointPause {
 public:
  enum class At { kWithinEpoch, kEndOfTraining, kBetweenEpochs };
  friend constexpr At LastOf(At) { return At::kBetweenEpochs; }
  enum class Then { kTrainOn, kFinishTraining, kNextEpoch, kExport };

  void Begin(At at) { at_ = at; }
  At at() const { return at_; }  // Where the last pause began.
  // The job need not stand any longer: the checkpoint is copied or abandoned; the job's last one:
  // complete or abandoned.
  bool IsOver(const Checkpoints& checkpoints) const;
  // `all_trained`: no epoch is to follow.
  Then Leave(const Checkpoints& checkpoints, bool all_trained);

  // ---- the job's last checkpoint
  void StopAfter(CheckpointId id) { stops_after_ = id; }
  // This checkpoint, or a later one, is the job's last; 0: the job does not stop.
  CheckpointId stops_after() const { return stops_after_; }
  bool MustStop() const { return stops_after_ != CheckpointId(0); }
  void OnEnded(const CheckpointEnded& ended);
  bool IsSaved(const Checkpoints& checkpoints) const;  // The job's last is complete.

  // ---- the best epoch's model: once the job has trained on, it is lost
  void BeginKeeping(Instant now);
  bool keeping() const { return keeping_.has_value(); }
  bool MayTryAgain() const;     // REQUIRES: keeping().
  bool TryAgain(Instant now);   // True: a checkpoint is to be begun. REQUIRES: MayTryAgain().
  Instant NextAttempt() const;  // When TryAgain will be true; InfiniteFuture if it will not be.
  void EndKeeping() { keeping_.reset(); }

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(at_, stops_after_, keeping_);
  }

 private:
  static constexpr int kKeepAttemptsMax = 6;  // They take half a minute with the pauses.

  struct Keeping {
    int attempts = 0;
    Instant next;  // The next attempt is not earlier.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(attempts, next);
      CheckLoaded(archive,
                  [this] { return CheckRange("attempts", attempts, 0, kKeepAttemptsMax); });
    }
  };

  At at_ = At::kWithinEpoch;
  CheckpointId stops_after_;
  std::optional<Keeping> keeping_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINT_PAUSE_H_
