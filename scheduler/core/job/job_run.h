// JobRun: one job's lifetime from the moment it is given servers and task slots to its end.
//
//   PLACING --all servers have made the tables--> STARTING --every placed task is ready-->
//   TRAINING(0) --all leases done--> EVALUATING(0) --all results in--> TRAINING(1) ... -->
//   EXPORTING --a task wrote the model, and it is in its place--> FINISHING --all tasks exited-->
//   succeeded
//   EVALUATING(the last) --another epoch was better--> RECOVERING its checkpoint -->
//   EVALUATING the model on the test split, if epochs used another --> EXPORTING
//   EXPORTING --it cannot be written--> kept by the servers --AskExport--> EXPORTING; or, too late,
//   failed
//   any --End--> stopped, or failed
//   TRAINING, EVALUATING --AskCheckpoint, and stop--> CHECKPOINTING --it is complete--> EXPORTING
//   --> FINISHING --> stopped; where it is given up the job trains on
//   any but FINISHING --shards are lost--> RECOVERING --all are held again--> where it was
//
//   TRAINING, or between epochs --a checkpoint is due and all is quiet--> CHECKPOINTING --all
//   servers have copied the tables--> where it was
//
// EVALUATING is skipped without a split for it. Tasks start while servers make the tables. A job
// that begins with a checkpoint, or goes back to one, goes from STARTING to the phase of that
// checkpoint. RECOVERING lies over the phase that the job was in: leases stay as they are, training
// pauses.
//
// Its parts do the work, each with its own states: JobTraining, JobEpochs (evaluation, and the best
// epoch), JobCheckpoints, JobExport, ServerWatch (recovery) and TaskWatch. JobRun leads from one
// phase to the next, and ends the job: by a Failure that a task or a server reports, or one that a
// part has found. No Failure ends the job once its model is whole, unless the model cannot be moved
// to its place.
//
// Facts come in through the methods below; what the job wants is read from its parts, and what
// happened is appended to `events`. Thread safety: thread-compatible.
// Invariants: (1) after each fact the job has gone as far as it can.
//             (2) an ended job never changes.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_JOB_RUN_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_JOB_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/checkpoints/checkpoint_pause.h"
#include "scheduler/core/checkpoints/checkpoints.h"
#include "scheduler/core/job/job_parts.h"
#include "scheduler/core/job/parts/job_shared.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

class JobRun {
 public:
  using Options = JobRunOptions;
  struct DeadNode {
    NodeId node;
    std::string why;
    Instant fenced_at;  // From then on it answers no reads.
  };
  // The files that the shell is to write, each given once in each incarnation of the scheduler.
  struct Files {
    std::optional<CheckpointPublish> checkpoint;  // Its manifest.
    std::optional<ModelPublish> model;            // It must be moved to its place.
  };
  enum class AndThen { kTrainOn, kStop };

  // `restore`: the job begins with it; then the term of every shard of `routing` is kRestoreTerm.
  JobRun(const JobPlan& plan, std::shared_ptr<const Routing> routing, const Options& options,
         Instant now, std::optional<RestoreFrom> restore = std::nullopt);
  static constexpr Term kRestoreTerm = ServerWatch::kRestoreTerm;

  const JobParts& parts() const { return parts_; }

  // ---- tasks
  void PlaceTask(Rank rank, Incarnation incarnation, const NodeId& node, const std::string& address,
                 Instant now, Events& events);
  // Errors (nothing changes): as TaskWatch::OnReport; kAborted  the job has ended, too.
  absl::Status OnTaskReport(const TaskReport& report, Instant now, Events& events);
  void OnTaskExited(const TaskKey& task, const TaskExit& exit, bool node_leaving, Instant now,
                    Events& events);
  // Ends tasks that have not reported in time. If a task's daemon is silent, too, the task may not
  // be at fault, and it gets the time of a lease again.
  void ExpireTasks(absl::FunctionRef<bool(const NodeId&)> is_silent, Instant now, Events& events);
  // The rank leaves its daemon and wants a slot elsewhere. No crash is counted. At own pace, a task
  // whose run is done is told to finish instead.
  void MoveTask(Rank rank, const std::string& why, Instant now, Events& events);
  // Ranks whose assignment or routing table is newer than at the last call.
  std::vector<Rank> TakeChangedAssignments() { return parts_.tasks.TakeChanged(); }

  // ---- nodes and servers
  void OnNodesDied(absl::Span<const DeadNode> nodes, Instant now, Events& events);
  // `server`: a live server, whether it has shards of the job or not. `stored`: the shards in the
  // logs with which it registered, given once. REQUIRES: an earlier incarnation of that name has
  // died.
  void OnServerJoined(const ServerRef& server, absl::Span<const StoredShard> stored, bool draining,
                      Instant now, Events& events);
  void OnServerDraining(const ServerRef& server, bool draining, Instant now, Events& events);
  void OnTableReport(const NodeId& server, const TableReport& report, Instant now, Events& events);
  // Adopts a job of another cluster in its last recorded state: its servers and tasks are gone, and
  // its shards are read from the logs of servers that join. REQUIRES: it has not ended.
  // `first_incarnation`: above all incarnations of its tasks. `floor`: the highest id of its
  // checkpoints.
  void Adopt(const std::string& cluster, Incarnation first_incarnation, CheckpointId floor,
             Instant now, Events& events);

  // ---- files
  Files TakeFiles();
  void OnCheckpointPublished(CheckpointId id, const absl::Status& status, Instant now,
                             Events& events);
  // Accepts the result of a ModelPublish. No effect unless JobExport::Awaits it. If it failed, the
  // task that wrote the model must move it.
  void OnModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                        Events& events);

  // ---- users
  // Asks for a checkpoint as soon as the job can be quiet. Returns the id that it will have. kStop:
  // the job stops once the checkpoint is complete and the model is written, but trains on if the
  // checkpoint is given up; a repeated kStop returns the same id.
  // Errors: kFailedPrecondition  the job trains no more.
  absl::StatusOr<CheckpointId> AskCheckpoint(AndThen then, Instant now, Events& events);
  // The same, for a snapshot. Errors: also those of CheckpointClock::AskSnapshot.
  absl::StatusOr<CheckpointId> AskSnapshot(uint64_t reader, Instant now, Events& events);
  // Writes the model that is kept into `folder`; empty: the same folder as before.
  // Errors: kFailedPrecondition  none is kept.
  absl::Status AskExport(const std::string& folder, Instant now, Events& events);
  // Ends the job in `state`. No effect if it has ended.
  void End(JobState state, const Failure& failure, Instant now, Events& events);

  // ---- time
  void Tick(Instant now, Events& events);
  Instant NextDeadline() const;
  // Restarts all time limits; those of tasks after `rejoin`, in which they find the scheduler.
  void RestartLimits(Instant now, absl::Duration rejoin);
  // After loading or a stall: the same, and the revision stays above all that users have seen.
  // `first`: the least generation of memberships from now on, since servers' logs may have later
  // ones than a store that was restored from a backup.
  void Restored(Instant now, absl::Duration rejoin, Generation first = Generation(0));

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    parts_.Serialize(archive, membership_seen_);
  }

 private:
  // Tasks.
  void EndTask(Rank rank, const Failure& failure, Instant now, Events& events);  // A crash.
  void OnTaskExpired(Rank rank, Instant now, Events& events);
  void OnTaskFailed(const TaskReport& report, Instant now, Events& events);
  void EndHungTasks(Instant now, Events& events);
  void RefreshAssignments();
  void Assign(Task& task, Assignment wanted);
  Assignment WantedAssignment(const Task& task) const;

  void OnTableFailed(const NodeId& server, const TableReport& report, Instant now, Events& events);
  absl::Status CheckTrains(Instant now) const;
  void EndIf(const std::optional<Failure>& failure, Instant now, Events& events);

  // Phases (job_run_phases.cc).
  void Advance(Instant now, Events& events);
  void CountTime(Instant now);
  bool AdvancePhase(Instant now, Events& events);
  bool LeaveStarting(Instant now, Events& events);
  bool AdvanceTraining(Instant now, Events& events);
  bool AdvanceExport(Instant now, Events& events);
  void AdvanceFinishing(Instant now, Events& events);
  void EnterFinishing(Instant now, Events& events);
  void FinishTraining(Instant now, Events& events);
  void EnterEvaluating(Events& events);
  void FinishEvaluation(Instant now, Events& events);
  void FinishEpoch(Instant now, Events& events);
  void EnterNextEpoch(Instant now, Events& events);
  void EnterEnd(Events& events);
  // False: none was due.
  bool TakeCheckpoint(CheckpointPause::At at, Instant now, Events& events);
  bool KeepBest(Instant now, Events& events);
  void LeaveCheckpoint(Instant now, Events& events);
  void ExportAndStop(Instant now, Events& events);
  void ResumeAt(const ResumePoint& at, Instant now, Events& events);

  JobParts parts_;
  Instant finishing_since_;
  Generation membership_seen_;  // The last one that desired_version counts.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_JOB_RUN_H_
