// JobRun: one job's life from the moment it is given servers and task slots to its end.
//
//   PLACING --all servers have made the tables--> STARTING --every placed task is ready-->
//   TRAINING(0) --all leases done--> EVALUATING(0) --all results in--> TRAINING(1) ... -->
//   EXPORTING --a task wrote the model, and it is in its place--> FINISHING --all tasks exited-->
//   succeeded
//   EVALUATING(the last) --another epoch was better--> RECOVERING its checkpoint -->
//   EVALUATING the model on the test split, if epochs had another --> EXPORTING
//   EXPORTING --it cannot be written--> kept by the servers --AskExport--> EXPORTING; or, too late,
//   failed
//   any --Stop--> stopped      any --an error--> failed
//   TRAINING, EVALUATING --SaveAndStop--> CHECKPOINTING --it is complete--> EXPORTING --> FINISHING
//   --> stopped; where it is given up the job trains on
//   any but FINISHING --shards are lost--> RECOVERING --all are held again--> where it was
//
//   TRAINING, or between epochs --a checkpoint is due and all is quiet--> CHECKPOINTING --all
//   servers have copied the tables--> where it was
//
// EVALUATING is skipped without a split for it. Tasks start while servers make the tables. A job
// that begins with a checkpoint, or goes back to one, comes from STARTING to where that one stood.
// RECOVERING lies over the phase that the job was in: leases stay as they are, training pauses.
//
// A task that dies gives back its leases and its rank waits for a slot; the job goes on with the
// others. So it does when one hangs: it has work, or prepares, and neither gets on nor names what
// it waits for. A server that dies, loses its disk or is drained hands its shards to others. What
// ends a job: a Failure that a task or a server reports, more crashes than max_restarts, no live
// task for worker_wait, lost shards that nothing restores, a server that stands with what it is
// sent. None of these does once its model is whole, unless that cannot be moved to its place.
//
// Facts come in through the methods below; what the job wants is read back (assignments,
// membership, unplaced ranks), and what happened is appended to `events`.
// Thread safety: thread-compatible.
// Invariants: (1) work is leased only to live tasks that all servers know to be active.
//             (2) generations and the revision never decrease.   (3) an ended job never changes.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_RUN_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/checkpoint_pause.h"
#include "scheduler/core/checkpoints.h"
#include "scheduler/core/events.h"
#include "scheduler/core/job_epochs.h"
#include "scheduler/core/job_export.h"
#include "scheduler/core/job_members.h"
#include "scheduler/core/job_metrics.h"
#include "scheduler/core/job_plan.h"
#include "scheduler/core/job_recovery.h"
#include "scheduler/core/job_tasks.h"
#include "scheduler/core/links/dead_links.h"
#include "scheduler/core/messages.h"
#include "scheduler/core/placement.h"
#include "scheduler/core/resume_point.h"
#include "scheduler/core/sample_work.h"
#include "scheduler/core/shard_map.h"
#include "scheduler/core/slot_work.h"
#include "scheduler/core/views.h"
#include "scheduler/core/work_leases.h"

namespace capstan::scheduler {

class JobRun {
 public:
  struct Options {
    JobTasks::Options tasks;
    // For a server to apply what it is sent, or to make one more shard.
    absl::Duration server_limit = absl::Seconds(60);
    absl::Duration contradiction_limit =
        absl::Seconds(10);                            // For a task that is idle with work at hand.
    absl::Duration finish_limit = absl::Seconds(10);  // For the tasks to exit at the end.
    absl::Duration task_progress_limit = absl::Minutes(5);  // For a task that waits for nothing.
    absl::Duration report_interval = absl::Seconds(1);      // Between two Report events.
    absl::Duration lease_ahead =
        absl::Seconds(60);                       // The longest sample lease, at the task's pace.
    absl::Duration keep_model = absl::Hours(1);  // How long a model is kept that cannot be written.
    DeadLinks::Options links;
    ShardMap::Options shards;  // `replicas` and `servers` are set from the plan.
  };
  struct DeadNode {
    NodeId node;
    std::string why;
    Instant fenced_at;  // From then on it answers no reads.
  };

  // `restore`: it begins there; then the term of every shard of `routing` is restore_term().
  JobRun(const JobPlan& plan, std::shared_ptr<const Routing> routing, const Options& options,
         Instant now, std::optional<RestoreFrom> restore = std::nullopt);
  static constexpr Term kRestoreTerm{2};  // The first term of a job that begins with a checkpoint.

  // ---- facts in
  void PlaceTask(Rank rank, Incarnation incarnation, const NodeId& node, const std::string& address,
                 Instant now, Events& events);
  // Errors (nothing changes): kAborted          not the live incarnation of the rank, or the job
  // has ended.
  //                           kInvalidArgument  a count or a lease is out of range.
  absl::Status OnTaskReport(const TaskReport& report, Instant now, Events& events);
  void OnTaskExited(const TaskKey& task, const TaskExit& exit, bool node_leaving, Instant now,
                    Events& events);
  // The task has not reported in time. OnTaskExpired: its daemon has, so the fault is the task's.
  // ExcuseTask: nor has that, and the task has the time of a lease again.
  void OnTaskExpired(Rank rank, Instant now, Events& events);
  void ExcuseTask(Rank rank, Instant now) { tasks_.Excuse(rank, now); }
  void OnNodesDied(absl::Span<const DeadNode> nodes, Instant now, Events& events);
  // A server wrote the log for this job, on the word of a scheduler of this cluster.
  bool HasWritten(const StoredShard& log) const;
  // A live server, of the job or not; `stored`: what it registered with, given once. REQUIRES: an
  // earlier life of that name has died.
  void OnServerJoined(const ServerRef& server, absl::Span<const StoredShard> stored, bool draining,
                      Instant now, Events& events);
  void OnServerDraining(const ServerRef& server, bool draining, Instant now, Events& events);
  // The rank leaves its daemon and wants a slot elsewhere. No crash is counted.
  void MoveTask(Rank rank, const std::string& why, Instant now, Events& events);
  void OnTableReport(const NodeId& server, const TableReport& report, Instant now, Events& events);
  // `witness` has heard of decisions that are not in the scheduler's store, or a log that it has is
  // of such: the store is an older copy of itself. The job ends, for its routing may name copies
  // that are out of date, and what its tasks have done may be unknown.
  void OnOlderStore(const std::string& witness, Instant now, Events& events);
  static Failure OlderStore(const std::string& witness);  // Ends jobs that have not started, too.
  // One is taken as soon as the job can be quiet. The id that it will have.
  // Errors: kFailedPrecondition  the job trains no more.
  absl::StatusOr<CheckpointId> AskCheckpoint(Instant now, Events& events);
  // Same as AskCheckpoint(), for a snapshot. Errors: also those of Checkpoints::AskSnapshot.
  absl::StatusOr<CheckpointId> AskSnapshot(uint64_t reader, Instant now, Events& events);
  void OnCheckpointPublished(CheckpointId id, const absl::Status& status, Instant now,
                             Events& events);
  // Accepts the result of a ModelPublish. No effect unless AwaitsModel. If it failed, the task that
  // wrote the model must move it.
  void OnModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                        Events& events);
  // Writes the model that is kept into `folder`; empty: where it was to be.
  // Errors: kFailedPrecondition  none is kept.
  absl::Status AskExport(const std::string& folder, Instant now, Events& events);
  // The job was another cluster's, and is given to this one as it was recorded last: its servers
  // and tasks are gone, and shards are read from the logs of servers that join. REQUIRES: !ended().
  // `first_life`: below it are all lives of its tasks. `floor`: of its checkpoints, the highest.
  void Adopt(const std::string& cluster, Incarnation first_life, CheckpointId floor, Instant now,
             Events& events);
  void Stop(Instant now, Events& events);
  // Stops once a checkpoint is complete and the model is written. If that checkpoint is given up
  // the job goes on. The id that it will have; a repetition is the same question.
  // Errors: kFailedPrecondition  the job trains no more.
  absl::StatusOr<CheckpointId> SaveAndStop(Instant now, Events& events);
  void Tick(Instant now, Events& events);
  Instant NextDeadline() const;

  // ---- what the job wants
  bool ended() const { return state_ != JobState::kRunning; }
  JobState state() const { return state_; }
  Instant ended_at() const { return ended_; }  // REQUIRES: ended().
  std::vector<Rank> UnplacedRanks() const;     // The ranks that want a task slot.
  // Worker daemons that cannot reach a server of the job. Another is better, and none, too, while
  // tasks run elsewhere.
  absl::btree_set<NodeId> AvoidedWorkers() const { return links_.AvoidedWorkers(); }
  // The server that this rank waits for and cannot reach from its worker. Empty: none.
  NodeId StrandedFrom(Rank rank) const { return links_.StrandedFrom(rank); }
  std::vector<Rank> ExpiredTasks(Instant now) const;
  std::vector<TaskKey> PlacedTasks() const;
  const Task* FindLife(const TaskKey& task) const;
  const Task& task(Rank rank) const { return tasks_.at(rank); }
  Incarnation last_life() const {
    return tasks_.LastLife();
  }  // The newest incarnation of its tasks; 0: none was placed.
  // Something that it is assigned is not reported done, or it prepares.
  bool HasUnfinishedWork(const Task& task) const;
  const std::shared_ptr<const Routing>& routing() const { return routing_; }
  const JobMembership& membership() const { return members_.membership(); }
  RestoreSource restore_source() const;
  const JobPlan& plan() const { return plan_; }
  // Its table names the server, in this or an earlier life.
  bool UsesServer(const NodeId& node) const { return shards_.routing().Names(node); }
  const ShardMap& shards() const { return shards_; }
  // The log on that server's disk may be all that is left of a shard.
  bool AwaitsLogOf(const NodeId& node) const {
    return recovery_.ReadsLogs() && shards_.NeedsLogOf(node);
  }
  CheckpointOrder checkpoint_order() const { return checkpoints_.order(); }
  const Checkpoints& checkpoints() const { return checkpoints_; }
  // The manifest that is to be written, given once in each life of the scheduler.
  std::optional<CheckpointPublish> TakePublish() { return checkpoints_.TakePublish(); }
  // The model that is to be given its name, likewise.
  std::optional<ModelPublish> TakeModelPublish();
  // It is that of this life, still.
  bool AwaitsModel(const TaskKey& exporter) const;
  // A server writes its part of a checkpoint there now, or a task the model.
  bool WritesInto(const std::string& folder) const;
  // The checkpoint there is the job's, or one beside that with which it began.
  bool MayGoBackTo(const std::string& folder) const;

  uint64_t revision() const { return revision_; }  // Grows with every visible change.
  uint64_t desired_version() const {
    return desired_version_;
  }  // Grows when a daemon is concerned.
  // Ranks whose assignment is newer than at the last call.
  std::vector<Rank> TakeChangedAssignments();

  JobView View(Instant now) const;  // `submitted` is the caller's to fill.

  // ---- durable state, in the form of scheduler/store/archive.h
  // Grows with every decision, which must be durable before anybody hears of it. What only the
  // revision counts is progress: it may be lost, for the tasks report it again.
  uint64_t durable_version() const {
    return desired_version_ + decisions_ + checkpoints_.changes();
  }
  // All but what the constructor takes.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(state_, phase_, failure_, started_, ended_, tasks_, members_, metrics_, epochs_,
            training_begun_, export_, crashes_, restarts_, first_failure_, last_death_, revision_,
            desired_version_, decisions_, membership_seen_, checkpoints_, pause_, order_seen_,
            shards_, recovery_);
    if (plan_.consistency.synchronous()) {
      archive(static_cast<SlotWork&>(*work_));
    } else {
      archive(static_cast<SampleWork&>(*work_));
    }
  }
  // Whatever has a limit gets its whole time again; tasks after `rejoin`, in which they find the
  // scheduler.
  void RestartLimits(Instant now, absl::Duration rejoin);
  // After loading: the same; the revision stays above all that were seen.
  // `first`: of memberships from now on; servers' logs may have later ones than a store that was
  // put back knows.
  void Restored(Instant now, absl::Duration rejoin, Generation first = Generation(0));

 private:
  // In an epoch's training, if need be quiet for a checkpoint.
  bool training() const {
    return phase_ == JobPhase::kTraining || (phase_ == JobPhase::kCheckpointing &&
                                             pause_.at() != CheckpointPause::At::kBetweenEpochs);
  }
  // The job was to stop after a checkpoint that is complete now. It trains no more.
  bool IsSaved() const { return pause_.IsSaved(checkpoints_); }
  // Only the leases know how much of the epoch is trained.
  bool IsWithinEpoch() const {
    return training() || (IsSaved() && pause_.at() != CheckpointPause::At::kBetweenEpochs);
  }
  bool HasBegun() const {
    return epochs_.returned() || (phase_ != JobPhase::kPlacing && phase_ != JobPhase::kStarting);
  }
  absl::Status ValidateReport(const TaskReport& report) const;
  static std::string TextOf(const Activity& activity);  // " (7 rows written)", or nothing.
  bool TakeProgress(Task& task, const TaskReport& report, Instant now);  // True: it moved on.
  void NoteContradiction(Task& task, bool moved, Instant now);
  void EndHungTasks(Instant now, Events& events);
  // Servers that tasks cannot reach (job_run_links.cc).
  void CheckLinks(Instant now, Events& events);
  void LeaveDeadLink(const DeadLinks::Silence& silence, Instant now, Events& events);
  bool IsReached(const DeadLinks::Link& link) const;  // Its server, by a task on another worker.
  void EndTask(Rank rank, const Failure& failure, bool counted, Instant now, Events& events);
  void EmitReport(Instant now, Events& events);  // Unless nothing was trained since the last.
  double AccuracyOf(const JobMetrics::Sums& sums) const;  // 0 where the objective has none.

  void Advance(Instant now, Events& events);
  bool AdvancePhase(Instant now, Events& events);
  void EnterTraining(Epoch epoch, const ResumePoint* from, Instant now, Events& events);
  void AdvanceTraining(Instant now);

  // Checkpoints (job_run_checkpoints.cc).
  bool IsQuiet() const;  // Training, and nothing is on its way.
  // True: if one was due.
  bool TakeCheckpoint(CheckpointPause::At at, Instant now, Events& events);
  void LeaveCheckpoint(Instant now, Events& events);
  void ExportAndStop(Instant now, Events& events);
  void PlanQuiet(Instant now);
  ResumePoint PointNow(CheckpointPause::At moment, Instant now) const;
  void ResumeAt(const ResumePoint& at, Instant now, Events& events);
  void NoteCheckpoints(Events& events);
  absl::Status CheckTrains(Instant now) const;
  void EnterEvaluating(Events& events);

  // A task has written the model: servers and tasks are missed only if it cannot be moved.
  bool IsModelWhole() const;
  bool IsNeeded(Rank rank) const;  // The model is not whole, or this task alone can move it.
  // The failure is that the model cannot be written, by the task that is to do so.
  bool IsOfExport(const Task& task, const Failure& failure) const;
  void CheckKeptModel(Instant now, Events& events);
  void EnterFinishing(Instant now, Events& events);
  void FinishTraining(Instant now, Events& events);
  void FinishEvaluation(Instant now, Events& events);
  void FinishEpoch(Instant now, Events& events);
  void EnterNextEpoch(Instant now, Events& events);

  // The best epoch, and the end of training.
  bool KeepBest(Instant now, Events& events);
  // A job that a user has saved and stopped leaves the model of that moment.
  bool MustReturn() const { return !IsSaved() && epochs_.MustReturnTo(checkpoints_.kept()); }
  bool ReturnToBest(Instant now, Events& events);
  void EnterEnd(Events& events);

  void SetPhase(JobPhase phase, Events& events);
  bool BeginTraining(Instant now);
  void GrantTraining(Instant now);
  void ActivateJoiners(Instant now);
  void DeactivateWorkless(Instant now);
  void RestMembers(Instant now);  // Training is over, for now: no task holds others back.
  std::vector<Rank> ReadyRanks() const;
  void CheckWorkers(Instant now, Events& events);
  void CheckServers(Instant now, Events& events);
  void SettleShards(Instant now, Events& events);
  void TakeRouting(Instant now, Events& events);
  void BeginRecovery(Instant now, Events& events);
  void EndForLostShards(Instant now, Events& events);
  void Recover(Instant now, Events& events);
  void OnServerFailed(const NodeId& server, const std::string& why, Instant now, Events& events);
  bool GoBack(Instant now, Events& events);
  const RestoreFrom* NewestCheckpoint() const;  // Null: none. Where the job began counts as one.
  bool TryOlderCheckpoint(const NodeId& server, const std::string& why, Instant now,
                          Events& events);
  void RefreshAssignments();
  Assignment WantedAssignment(const Task& task) const;
  void End(JobState state, const Failure& failure, Instant now, Events& events);

  int64_t IterationNow() const;
  int64_t StepsEnd() const { return epochs_.plan().Steps(epochs_.epoch()).end; }
  int64_t SamplesDone() const;
  std::string Detail(Instant now) const;
  std::string EndDetail() const;
  std::string PreparingDetail() const;  // "; ...": who prepares, and how far; or nothing.
  const char* StateAtEnd(const Task& task) const;
  TaskView ViewTask(const Task& task) const;

  const JobPlan plan_;
  const Options options_;
  ShardMap shards_;
  // The table of shards_. Immutable: replies on their way out share it.
  std::shared_ptr<const Routing> routing_;

  JobState state_ = JobState::kRunning;
  JobPhase phase_ = JobPhase::kPlacing;
  Failure failure_;
  Instant started_;
  Instant ended_;

  JobTasks tasks_;
  DeadLinks links_;
  const std::unique_ptr<WorkLeases> work_;
  JobMembers members_;
  JobMetrics metrics_;

  JobEpochs epochs_;
  bool training_begun_ = false;  // In this phase: members are active.
  JobExport export_;

  Checkpoints checkpoints_;
  CheckpointPause pause_;
  CheckpointId order_seen_;  // By desired_version_.
  JobRecovery recovery_;

  int crashes_ = 0;
  int restarts_ = 0;
  Failure first_failure_;   // Why the first task died by its own fault.
  std::string last_death_;  // Why a task died last, by whatever cause.
  std::optional<Instant> without_worker_since_;
  Instant finishing_since_;
  Instant last_report_event_;

  uint64_t revision_ = 1;
  uint64_t desired_version_ = 1;
  uint64_t decisions_ = 0;      // Decisions that desired_version_ does not count.
  Generation membership_seen_;  // By desired_version_.
  absl::btree_set<Rank> changed_assignments_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_RUN_H_
