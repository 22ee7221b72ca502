// JobCheckpoints: the checkpoints of a running job together with the pause that each of them makes
// in its training: on request, before a stop, and of the best epoch's model.
//
//   TRAINS --IsDue, and all is quiet: Begin--> STANDS --IsOver, Leave--> as CheckpointPause says
//   the best epoch so far --BeginKeeping--> KEEPING --KeepBest: begin--> a checkpoint is under way
//        ^                                    |  ^------- it was given up -------/    |
//        |                                    \--too many attempts--> over <--complete/
//   any --GoBack (the job goes back)--> TRAINS, later
//
// Checkpoints has the servers' progress with the present one, and the complete ones. Called by
// JobRun and its parts. Thread safety: thread-compatible.
// Invariant: a job that IsSaved trains no more.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_CHECKPOINTS_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/checkpoints/checkpoint_pause.h"
#include "scheduler/core/checkpoints/checkpoints.h"
#include "scheduler/core/job/parts/job_shared.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

class JobCheckpoints {
 public:
  explicit JobCheckpoints(JobShared* job) : job_(*job), checkpoints_(job->plan) {}

  Checkpoints& all() { return checkpoints_; }
  const Checkpoints& all() const { return checkpoints_; }
  const CheckpointPause& pause() const { return pause_; }

  // ---- requests; each returns the id that the checkpoint will have
  CheckpointId Ask();
  CheckpointId AskLast();  // The job stops after it, unless it is given up.
  // The job was to stop after a checkpoint that is complete now. It trains no more.
  bool IsSaved() const { return pause_.IsSaved(checkpoints_); }

  // ---- the pause
  // The job stands between two epochs, or did when it was saved.
  bool IsBetweenEpochs() const { return pause_.at() == CheckpointPause::At::kBetweenEpochs; }
  // REQUIRES: one is due, and the job is quiet at `steps`.
  void Begin(CheckpointPause::At at, const Routing& routing, const ResumePoint& point,
             int64_t steps, Instant now);
  bool IsOver() const { return pause_.IsOver(checkpoints_); }
  CheckpointPause::Then Leave();
  // The job went back to its last checkpoint, and may begin to train from within an epoch.
  void StandWithinEpoch() { pause_.Begin(CheckpointPause::At::kWithinEpoch); }

  // ---- the best epoch's model, which is lost once training goes on
  void BeginKeeping(Instant now) { pause_.BeginKeeping(now); }
  enum class Keeping { kWait, kBegin, kOver };
  Keeping KeepBest(Instant now);  // kBegin: Begin a checkpoint now.   REQUIRES: keeping.
  // When KeepBest will begin one; InfiniteFuture: not before another event.
  Instant NextAttempt() const;
  // The job must go back to the best epoch's model. A job that a user has saved and stopped does
  // not: it exports the model of that moment.
  bool MustReturn() const {
    return !IsSaved() && job_.epochs.MustReturnTo(checkpoints_.complete().kept());
  }

  // ---- failures
  void GoBack(const std::string& why);  // Abandons the one under way, and keeps no model.
  // Forgets a checkpoint that cannot be read. It may have been the best epoch's, or the job's last.
  void Forget(CheckpointId id);

  // ---- others
  void Note(Events& events);  // Appends the ends since the last call.
  bool TakeOrderChanged();    // True: servers have a new order since the last call.

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(checkpoints_, pause_, order_seen_);
    CheckLoaded(archive, [this] { return Check(); });
  }

 private:
  absl::Status Check() const;  // Errors: kDataLoss  they are not of such a job.

  JobShared& job_;
  Checkpoints checkpoints_;
  CheckpointPause pause_;
  CheckpointId order_seen_;  // The last order that desired_version counts.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_CHECKPOINTS_H_
