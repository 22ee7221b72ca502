// SchedulerCore: the scheduler's decisions. Messages of daemons, tasks and users come in, answers
// and events come out; SchedulerService carries them.
//
// Sync calls are held: the core keeps a call's ticket until there is news for its caller or the
// sync interval has passed, and then puts the answer into Actions. Every ticket that a method
// accepted (it returned OK) is answered exactly once, then or later.
//
// What it decides is durable before anybody hears of it: each step names what it changed
// (Actions::changes), and a core that died is made again from what was written
// (scheduler/store/state_codec.h), after which daemons and tasks go on as if it had been away.
//
// Pure: no clock, threads, sockets or logging. Thread safety: thread-compatible.
// Invariants: (1) a node's desired state has a generation that grows with every change.
//             (2) a task slot holds at most one task; a rank has at most one life.
//             (3) jobs start in the order of their submission.
//             (4) no server becomes primary within read_lease of the last contact with the one
//                 before it, unless that one is known to ask its replicas before each read, or
//                 becomes a replica without which nothing is committed.
#ifndef CAPSTAN_SCHEDULER_CORE_SCHEDULER_CORE_H_
#define CAPSTAN_SCHEDULER_CORE_SCHEDULER_CORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/changes.h"
#include "scheduler/core/checkpoints.h"
#include "scheduler/core/events.h"
#include "scheduler/core/folders/job_folders.h"
#include "scheduler/core/job_history.h"
#include "scheduler/core/job_plan.h"
#include "scheduler/core/job_queue.h"
#include "scheduler/core/job_run.h"
#include "scheduler/core/membership.h"
#include "scheduler/core/messages.h"
#include "scheduler/core/resume_point.h"
#include "scheduler/core/store_revisions.h"
#include "scheduler/core/views.h"
#include "scheduler/core/worker_slots.h"

namespace capstan::scheduler {

// The actions that the shell must perform after a step. It first makes `changes` durable, with
// those of all earlier steps. Then it may send the answers in any order, and reports the events in
// their order.
struct Actions {
  Changes changes;
  std::vector<CheckpointPublish> publishes;  // Manifests that the shell writes.
  std::vector<JobId> removals;  // Jobs whose older checkpoints are not needed: CheckpointsToRemove.
  std::vector<ModelPublish> models;  // Models that the shell moves, one after the other.
  std::vector<NodeReply> node_replies;
  std::vector<TaskReply> task_replies;
  std::vector<JobReply> job_replies;  // The job's view at the time of sending is the answer.
  std::vector<CheckpointReply> checkpoint_replies;
  std::vector<SnapshotReply> snapshot_replies;
  std::vector<DrainReply> drain_replies;
  Events events;
  size_t events_noted = 0;  // Number of events in the histories of jobs. Only the core uses it.
};

// The shell's knowledge of a loaded job of another cluster, for SchedulerCore::Adopt.
struct Adoption {
  JobId job;
  std::string cluster;        // The cluster from which the job comes.
  absl::Duration record_age;  // Age of the job's record.
  // The job's shards in the logs with which servers registered. Dead servers are ignored.
  absl::btree_map<NodeId, std::vector<StoredShard>> stored;
  CheckpointId checkpoint_floor;  // The highest id in the job's checkpoint folder.
  bool only_check = false;        // Only checks if the job could be adopted, then unloads it.
};

class SchedulerCore {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(3);  // The lease of daemons and of tasks.
    // How long those that live may take to find a scheduler that is back, before their leases
    // count: mostly the longest pause between two attempts (common/net/agent_timing.h), behind a
    // channel's own pause (common/net/channel.cc).
    absl::Duration rejoin = absl::Milliseconds(2500);
    absl::Duration sync_interval = absl::Milliseconds(200);  // Longest hold of a sync.
    // A primary that is cut off may answer reads for this long; well above sync_interval.
    absl::Duration read_lease = absl::Milliseconds(500);
    absl::Duration broken_limit = absl::Milliseconds(500);  // At least read_lease.
    JobRun::Options job;                                    // job.tasks.lease is set to `lease`.
    Incarnation first_incarnation{1};  // The first one that a cluster's first scheduler gives out.
    uint64_t number = 1;               // This scheduler process has it, and no other; not 0.
    // Ended jobs that are remembered, at most so many and for so long; the oldest are forgotten.
    size_t ended_jobs_max = 1000;
    absl::Duration ended_jobs_age = absl::InfiniteDuration();
    size_t watches_max =
        10000;  // Held GetJob, DrainNode, and SaveCheckpoint with OpenSnapshot calls, each.
    // Progress that tasks would report again is written this often, if nothing else is.
    absl::Duration progress_interval = absl::Seconds(1);
    // Servers keep a record of where a job with a log stands beside the log. A new one is sent with
    // each new routing table, else no more often than this, and kRecordIntervalPerShard for each
    // shard: it comes with the whole table. By default none is.
    absl::Duration record_interval = absl::InfiniteDuration();
  };
  static constexpr absl::Duration kRecordIntervalPerShard = absl::Milliseconds(1);
  explicit SchedulerCore(const Options& options);

  // ---- daemons
  // Errors: kInvalidArgument  as Membership::Register.
  absl::StatusOr<Registration> Register(const NodeInfo& info, Instant now, Actions& actions);
  // Errors: kNotFound  unknown node.   kAborted  not the live incarnation: register again.
  absl::Status SyncNode(Ticket ticket, const NodeReport& report, Instant now, Actions& actions);
  // The call of the node that is held was cut: by a reset, or because its process is gone. It is
  // answered, and the node is dead unless it syncs within broken_limit. REQUIRES: the call that was
  // cut is the held one; no effect if none is held or the life is over.
  void OnSyncBroken(const NodeId& node, Incarnation incarnation, Instant now, Actions& actions);

  // ---- tasks
  // Errors: kNotFound  no such job.   kAborted  not a live task of it.   kInvalidArgument  bad
  //                    figures.
  absl::Status SyncTask(Ticket ticket, const TaskReport& report, Instant now, Actions& actions);

  // ---- users
  // A number for the next job's name, never the same again. Durable with the next SubmitJob.
  uint64_t TakeJobNumber() { return next_job_name_++; }
  // `restore`: where the job begins, of a job with the same tables, data and batches.
  // REQUIRES: plan.id was not used before; the plan's ranges hold.
  // Errors: kFailedPrecondition  a job that has not ended writes into the same folders.
  //         kResourceExhausted   too many jobs wait.
  absl::Status SubmitJob(const JobPlan& plan, Instant now, Actions& actions,
                         const std::optional<RestoreFrom>& restore = std::nullopt);
  // Checks if a job of another cluster may be loaded (LoadJob) and adopted (Adopt).
  // Errors: kAlreadyExists       its id is taken.
  //         kFailedPrecondition  a job that has not ended writes into the same folders.
  absl::Status MayAdopt(const JobPlan& plan, Instant now) const;
  // Takes up a job that was loaded, as of another cluster: it goes on from the logs of the servers
  // that live here. REQUIRES: MayAdopt was ok, and LoadJob since.
  // Errors (the job is not known any more, nothing else has changed):
  //         kFailedPrecondition  it does not run; its shards are not all in logs here; no worker
  //                              could run its tasks. Says what is missing.
  absl::Status Adopt(const Adoption& from, Instant now, Actions& actions);
  void Unload(const JobId& job) { jobs_.erase(job); }  // As LoadJob has left it.
  // The job that a submission of this name has made, however often it comes. Null: none is known.
  const JobId* JobOfSubmission(uint64_t submission_id) const;
  // Names the resources that the cluster lacks for `job`, even if no other job ran. Empty: it lacks
  // none, or the job does not wait, or not all nodes are heard again after a restart.
  std::string WhyTooSmall(const JobId& job, Instant now) const;
  // Errors: kNotFound.
  absl::StatusOr<JobState> StopJob(const JobId& job, Instant now, Actions& actions);
  // The same once a checkpoint is complete and the model is written. The checkpoint's id, for
  // AwaitCheckpoint.
  // Errors: kNotFound.   kFailedPrecondition  the job does not train.
  absl::StatusOr<CheckpointId> SaveAndStopJob(const JobId& job, Instant now, Actions& actions);
  // Forgets a job that has ended.
  // Errors: kNotFound.   kFailedPrecondition  it has not ended.
  absl::Status DeleteJob(const JobId& job, Instant now, Actions& actions);
  // Answers once the job's revision is above `after_revision`, or after `limit`.
  // Errors: kNotFound.   kResourceExhausted  watches_max calls are held.
  absl::Status WatchJob(Ticket ticket, const JobId& job, uint64_t after_revision,
                        absl::Duration limit, Instant now, Actions& actions);

  // ---- checkpoints
  // Answers once a checkpoint that was begun after this call is complete or abandoned, or after
  // `limit`.
  // Errors: kNotFound.   kFailedPrecondition  the job does not train.   kResourceExhausted
  //         watches_max calls are held.
  absl::Status SaveCheckpoint(Ticket ticket, const JobId& job, absl::Duration limit, Instant now,
                              Actions& actions);
  // Same as SaveCheckpoint(), for a checkpoint that was requested earlier (CheckpointReply::asked),
  // or any later one.
  // Errors: as above; kFailedPrecondition  it was given up.
  absl::Status AwaitCheckpoint(Ticket ticket, const JobId& job, CheckpointId asked,
                               absl::Duration limit, Instant now, Actions& actions);
  // Answers once a snapshot that was begun after this call can be read, or cannot be taken, or
  // after `limit`. `reader`: its name for itself; a repetition is the same question.
  // Errors: as above; those of Checkpoints::AskSnapshot.
  absl::Status OpenSnapshot(Ticket ticket, const JobId& job, uint64_t reader, absl::Duration limit,
                            Instant now, Actions& actions);
  // Accepts the result of a CheckpointPublish. No effect if the job does not wait for it.
  void CheckpointPublished(const JobId& job, CheckpointId id, const absl::Status& status,
                           Instant now, Actions& actions);
  // Returns the job's checkpoints that may be removed now. The shell makes sure that no job which
  // pins one of them is submitted before the end of the removal.
  CheckpointRemoval CheckpointsToRemove(const JobId& job) const;
  // Accepts the result of a ModelPublish. No effect if the job does not wait for it.
  void ModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                      Actions& actions);
  // Writes the model that the job keeps, since it could not be written, into `folder`; empty: where
  // it was to be. `one_name`: of that folder, as JobFolders has them.
  // Errors: kNotFound.   kFailedPrecondition  the job keeps none; or another job that has not ended
  //         writes into that folder: names it.
  absl::Status ExportJob(const JobId& job, const std::string& folder, const std::string& one_name,
                         Instant now, Actions& actions);
  // The ModelPublish of this exporter is still to be performed.
  bool AwaitsModel(const TaskKey& exporter) const;
  // True if hosts that do not share this host's folders may now write parts of a checkpoint or a
  // model into `folder`, or may read the checkpoint in it.
  bool MayWriteInto(const std::string& folder) const;
  bool MayReadFrom(const std::string& folder) const;
  // Gives the node nothing new and moves what it has elsewhere, or (`cancel`) takes that back. The
  // wish is the name's and outlives the process. Answers when it is safe to stop, or after `limit`.
  // Errors: kNotFound.   kResourceExhausted  watches_max calls are held.
  absl::Status DrainNode(Ticket ticket, const NodeId& node, bool cancel, absl::Duration limit,
                         Instant now, Actions& actions);

  // ---- time
  void Tick(Instant now, Actions& actions);
  Instant NextDeadline() const;

  // ---- views
  absl::StatusOr<JobView> Job(const JobId& job, Instant now) const;  // Errors: kNotFound.
  std::vector<JobView> Jobs(Instant now) const;                      // By submission.
  std::vector<NodeView> Nodes() const;                               // Servers first, then by name.
  // Errors: kNotFound            no such job.
  //         kFailedPrecondition  the job has not been given servers.
  absl::StatusOr<std::shared_ptr<const Routing>> RoutingOf(const JobId& job) const;
  bool HasJob(const JobId& job) const { return jobs_.contains(job); }
  // The checkpoint that a job began with. Null: none, or there is no such job.
  const RestoreFrom* BeganWith(const JobId& job) const;
  // REQUIRES: HasJob(job).
  const std::string& UniqueIdOf(const JobId& job) const { return jobs_.at(job).plan.unique_id; }
  uint64_t RecordOf(const JobId& job) const { return jobs_.at(job).record; }  // As TableAssignment.

  // ---- durable state, in the form of scheduler/store/archive.h
  StoreRevisions& revisions() { return revisions_; }
  template <typename Archive>
  void SerializeNodes(Archive& archive) {
    archive(next_incarnation_, next_job_number_, next_job_name_, membership_, slots_, nodes_);
  }
  template <typename Archive>
  void SaveJob(const JobId& job, Archive& archive) const;  // REQUIRES: HasJob(job).
  // `routing`: the job's table as it was saved; null: none was.
  // Errors: kDataLoss  it is another job's, or known already; it runs and there is no table.
  template <typename Archive>
  absl::Status LoadJob(const JobId& job, std::shared_ptr<const Routing> routing, Instant now,
                       Archive& archive);
  // After loading all, before anything else: the live get their whole time again, nothing is held.
  void Restored(Instant now, Actions& actions);

 private:
  struct JobEntry {
    JobPlan plan;
    uint64_t number = 0;  // Order of submission.
    Instant submitted;
    std::unique_ptr<JobRun> run;  // Null: pending, or stopped before it started.
    bool stopped = false;         // Before it started.
    Instant stopped_at;
    Failure failure;                     // Why it was, if no user did.
    std::optional<RestoreFrom> restore;  // Where it begins.
    JobHistory history;
    std::string why_pending;
    uint64_t told_revision = 1;    // The revision of why_pending and of history.
    uint64_t desired_version = 0;  // The version of run that the nodes' desired states have.

    // The state of `run` that Changes named last.
    uint64_t written_version = 0;
    uint64_t written_revision = 0;
    Generation written_routing;
    Instant written_at;

    // The state of `run` in the last record for its servers. 0: none in this incarnation.
    uint64_t record = 0;
    Generation record_routing;
    Instant record_at;

    JobState unstarted_state() const {
      if (!stopped) return JobState::kPending;
      return failure.happened() ? JobState::kFailed : JobState::kStopped;
    }

    template <typename Archive>
    void serialize(Archive& archive) {
      archive(number, submitted, stopped, stopped_at, failure, told_revision, restore, history);
    }
  };
  // The desired state of a node, as ids; the reply has the details.
  struct Desired {
    // Job, routing, membership, checkpoint, record.
    std::vector<std::tuple<JobId, Generation, Generation, CheckpointId, uint64_t>> tables;
    std::vector<TaskKey> tasks;
    friend bool operator==(const Desired&, const Desired&) = default;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(tables, tasks);
    }
  };
  struct NodeState {
    Generation generation;
    Desired desired;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(generation, desired);
    }
    bool held = false;  // A sync is being held:
    Ticket ticket;
    Generation seen;
    Instant hold_until;
  };
  struct HeldTask {
    Ticket ticket;
    Generation assignment_seen;
    Generation routing_seen;
    Instant hold_until;
  };
  struct Watch {
    Ticket ticket;
    JobId job;
    uint64_t after_revision = 0;
    Instant until;
  };

  struct CheckpointWait {
    Ticket ticket;
    JobId job;
    CheckpointId id;  // Or a later one.
    Instant until;
    bool snapshot = false;
  };
  struct DrainWatch {
    Ticket ticket;
    NodeId node;
    Instant until;
  };

  std::vector<std::string> LivingLogs() const;
  // A node knows decisions that are not in this scheduler's store. Ends all jobs in which it takes
  // part, by its report or by the scheduler's state.
  void OnOlderStore(const NodeReport& report, Instant now, Actions& actions);
  // A server has registered with logs: ends the jobs whose logs know such decisions.
  void EndForLaterLogs(const NodeId& server, absl::Span<const StoredShard> stored, Instant now,
                       Events& events);
  void EndForOlderStore(JobEntry& entry, const std::string& witness, Instant now, Events& events);
  void EndUnstarted(JobEntry& entry, const Failure& failure, Instant now, Events& events);
  void NoteStall(Instant now, Actions& actions);
  // After every message, in this order.
  void Settle(Instant now, Actions& actions);
  void NoteEnded(Instant now, Actions& actions);
  void NoteHistory(Instant now, Actions& actions);
  static Instant EndOf(const JobEntry& entry);  // REQUIRES: it has ended.
  void KeepEnded(const JobEntry& entry);
  void ForgetOldest(Instant now, Actions& actions);
  void Forget(JobId job, Actions& actions);  // REQUIRES: it has ended.
  void ReleaseSlots(Actions& actions);
  void NoteLeft(Actions& actions);
  void MoveTasks(Instant now, Actions& actions);
  void MoveStranded(Instant now, Actions& actions);
  // Chooses a place for a rank of the job. It is on an avoided worker daemon only if none of the
  // job's tasks has a place.
  std::optional<WorkerSlots::Place> ChoosePlace(const JobEntry& job) const;
  void PlaceTasks(Instant now, Actions& actions);
  void StartJobs(Instant now, Actions& actions);
  void ExplainPending();
  void RefreshRecords(Instant now);
  void RefreshDesired();
  // Not OK: why the loaded job cannot go on here.
  absl::Status TakeUp(JobEntry& entry, const Adoption& from, Instant now, Events& events);
  absl::Status CheckLogs(const JobRun& run, const Adoption& from) const;
  void AnswerChanged(Actions& actions);
  void AnswerCheckpoints(Actions& actions);
  void AnswerMoment(const CheckpointEnded& ended, Actions& actions);
  void AnswerMoment(const SnapshotTaken& taken, Actions& actions);
  static void AnswerWithout(const CheckpointWait& wait, const absl::Status& why, Actions& actions);
  void HoldForCheckpoint(Ticket ticket, const JobId& job, CheckpointId asked, absl::Duration limit,
                         Instant now, Actions& actions);
  // Errors: kNotFound, kFailedPrecondition, kResourceExhausted  as SaveCheckpoint.
  absl::StatusOr<JobRun*> MayWaitForMoment(const JobId& job);
  void NoteChanges(Instant now, Actions& actions);

  void StartJob(JobEntry& entry, Instant now, Actions& actions);
  void TakeNodeDeaths(size_t first_event, Instant now, Actions& actions);
  // `current`: it has seen its newest desired state.
  void TakeNodeReport(const Node& node, const NodeReport& report, bool current, Instant now,
                      Actions& actions);
  void AnswerExpired(Instant now, Actions& actions);
  void AnswerNode(const NodeId& id, NodeState& state, Actions& actions);
  void AnswerTask(const TaskKey& key, Actions& actions);
  // Answers whoever waits for a drained node, if it is safe to stop or the time is up.
  void AnswerDrains(Instant now, Actions& actions);
  void NoteClosing(const Node& node, Instant now, Actions& actions);
  DrainReply DrainState(const NodeId& node) const;
  bool MayStop(const NodeId& node) const;
  std::vector<JobId> AwaitLogOf(const NodeId& node) const;  // Jobs whose shards may be there alone.
  bool MayMoveTask(const TaskKey& task) const;
  void RefuseTask(const TaskKey& key, Actions& actions);  // The task is not wanted any more.

  Desired WantedOf(const Node& node) const;
  std::vector<ServerRef> ChooseServers(const JobPlan& plan) const;
  std::vector<JobEntry*> Running();  // By submission.
  int ShardsOn(const NodeId& node) const;
  Supplies CurrentSupplies() const;
  const JobRun* RunOf(const JobId& job) const;  // Null: no such job, or it never started.
  JobRun* RunOf(const JobId& job);
  JobView ViewOf(const JobEntry& entry, Instant now) const;
  absl::Status CheckFolders(const JobFolders& folders, Instant now, const JobId& owner = {}) const;
  // Returns the checkpoint floor of a job in `folders`: ids up to the floor are not the job's.
  CheckpointId FloorIn(const JobFolders& folders, CheckpointId floor) const;
  uint64_t RevisionOf(const JobEntry& entry) const;

  const Options options_;
  Incarnation next_incarnation_;
  StoreRevisions revisions_;
  uint64_t next_job_number_ = 1;  // Order of submission.
  uint64_t next_job_name_ = 1;
  Membership membership_;
  WorkerSlots slots_;
  JobQueue queue_;
  absl::btree_map<JobId, JobEntry> jobs_;
  absl::btree_map<uint64_t, JobId> running_;  // By number.
  absl::btree_map<uint64_t, JobId> ended_;    // By number; at most ended_jobs_max.
  // The same by the time of their end, each with its number.
  absl::btree_set<std::pair<Instant, uint64_t>> ended_by_time_;
  absl::btree_set<JobId> leaving_;            // Ended jobs whose tasks may still run.
  absl::btree_map<NodeId, NodeState> nodes_;  // Live ones.
  absl::btree_map<TaskKey, HeldTask> held_tasks_;
  std::vector<Watch> watches_;                    // At most watches_max.
  std::vector<DrainWatch> drain_watches_;         // At most watches_max.
  std::vector<CheckpointWait> checkpoint_waits_;  // At most watches_max.
  Supplies explained_supplies_;              // The supplies that the pending jobs' reasons name.
  bool queue_changed_ = false;               // Since then.
  bool desired_changed_ = false;             // Since the nodes' desired states were made.
  Instant due_ = Instant::InfiniteFuture();  // When the timer was to come, since it came last.
  // Since Changes named them last; those of a running job are told by its versions.
  bool nodes_changed_ = false;
  absl::btree_set<JobId> changed_jobs_;
};

template <typename Archive>
void SchedulerCore::SaveJob(const JobId& job, Archive& archive) const {
  const JobEntry& entry = jobs_.at(job);
  archive(entry.plan, entry, entry.run != nullptr);
  if (entry.run != nullptr) archive(*entry.run);
}

template <typename Archive>
absl::Status SchedulerCore::LoadJob(const JobId& job, std::shared_ptr<const Routing> routing,
                                    Instant now, Archive& archive) {
  JobPlan plan;
  archive(plan);
  if (plan.id != job || jobs_.contains(job)) {
    return absl::DataLossError(plan.id != job ? "it is of " + plan.id : "the job is known already");
  }
  JobEntry& entry = jobs_[job];
  bool started = false;
  archive(entry, started);
  entry.plan = plan;
  if (!started) return absl::OkStatus();
  if (routing == nullptr) return absl::DataLossError("it runs and has no routing table");
  entry.run = std::make_unique<JobRun>(plan, std::move(routing), options_.job, now);
  archive(*entry.run);
  return absl::OkStatus();
}

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SCHEDULER_CORE_H_
