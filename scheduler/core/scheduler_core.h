// SchedulerCore: the state machine that makes the scheduler's decisions. Messages of daemons, tasks
// and users come in, answers and events come out; the shell (scheduler/state/durable_state.h)
// carries them.
//
// Sync calls are held: the core keeps a call's ticket until there is news for its caller or the
// sync interval has passed, and then puts the answer into Actions. Every ticket that a method
// accepted (it returned OK) is answered exactly once, then or later.
//
// Its decisions are durable before anybody hears of them: each step names what it changed
// (Actions::changes), and a core that died is made again from what was written
// (core_archive.h), after which daemons and tasks go on as if it had been away.
//
// Pure: no clock, threads, sockets or logging. Thread safety: thread-compatible.
// Invariants: (1) a task slot holds at most one task; a rank has at most one incarnation.
//             (2) jobs start in the order of their submission, but one for which the cluster is too
//                 small is passed over.
//             (3) no server becomes primary within read_lease of the last contact with the former
//                 primary, unless the former one is known to ask its replicas before each read, or
//                 becomes a replica itself, without which nothing is committed.
#ifndef CAPSTAN_SCHEDULER_CORE_SCHEDULER_CORE_H_
#define CAPSTAN_SCHEDULER_CORE_SCHEDULER_CORE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/changes.h"
#include "scheduler/core/checkpoints/checkpoints.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/job/views.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/nodes/membership.h"
#include "scheduler/core/placement/desired_states.h"
#include "scheduler/core/placement/job_adoption.h"
#include "scheduler/core/placement/job_placer.h"
#include "scheduler/core/placement/job_table.h"
#include "scheduler/core/placement/store_revisions.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"
#include "scheduler/core/waiting_calls.h"

namespace capstan::scheduler {

// The actions that the shell must perform after a step. It first makes `changes` durable, with
// those of all earlier steps. Then it may send the answers in any order, and reports the events in
// their order.
struct Actions {
  Changes changes;
  std::vector<CheckpointPublish> publishes;  // Manifests that the shell writes.
  std::vector<JobId> removals;  // Jobs with checkpoints to remove (JobTable::CheckpointsToRemove).
  std::vector<ModelPublish> models;  // Models that the shell moves, one after the other.
  std::vector<Reply> replies;
  Events events;
  size_t events_noted = 0;  // Number of events in the histories of jobs. Only the core uses it.
};

class SchedulerCore {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(3);  // The lease of daemons and of tasks.
    // Time in which live daemons and tasks find a scheduler that is back, before their leases
    // count: mostly the longest pause between two attempts (common/net/node/agent_timing.h), after
    // a channel's own pause (common/net/grpc/channel.cc).
    absl::Duration rejoin = absl::Milliseconds(2500);
    absl::Duration sync_interval = absl::Milliseconds(200);  // Longest hold of a sync.
    // A primary that is cut off may answer reads for this long; well above sync_interval.
    absl::Duration read_lease = absl::Milliseconds(500);
    absl::Duration broken_limit = absl::Milliseconds(500);  // At least read_lease.
    JobRun::Options job;                                    // job.tasks.lease is set to `lease`.
    Incarnation first_incarnation{1};  // The first one that a cluster's first scheduler gives out.
    uint64_t number = 1;               // Unique to this scheduler process; not 0.
    // Limits of the ended jobs that are remembered. The oldest are forgotten first.
    size_t ended_jobs_max = 1000;
    absl::Duration ended_jobs_age = absl::InfiniteDuration();
    size_t held_calls_max = 10000;  // Most calls of users that are held, for each kind.
    // How often progress is written if nothing else is. Lost progress is reported again by tasks.
    absl::Duration progress_interval = absl::Seconds(1);
    // Servers keep a record of a job's state beside its log. A new record is sent with each new
    // routing table, and otherwise at most once in this interval plus a millisecond for each shard
    // (DesiredStates), because it comes with the whole table. By default none is sent.
    absl::Duration record_interval = absl::InfiniteDuration();
  };
  explicit SchedulerCore(const Options& options);

  // ---- daemons
  // Errors: kInvalidArgument  as Membership::Register.
  absl::StatusOr<Registration> Register(const NodeInfo& info, Instant now, Actions& actions);
  // Errors: kNotFound  unknown node.   kAborted  not the live incarnation: register again.
  absl::Status SyncNode(Ticket ticket, const NodeReport& report, Instant now, Actions& actions);
  // The call of the node that is held was cut: by a reset, or because its process is gone. It is
  // answered, and the node is dead unless it syncs within broken_limit. REQUIRES: the call that was
  // cut is the held one; no effect if none is held or the incarnation is over.
  void OnSyncBroken(const NodeId& node, Incarnation incarnation, Instant now, Actions& actions);

  // ---- tasks
  // Errors: kNotFound  no such job.   kAborted  not a live task of it.   kInvalidArgument  bad
  //                    figures.
  absl::Status SyncTask(Ticket ticket, const TaskReport& report, Instant now, Actions& actions);

  // ---- users
  // Returns a number for the next job's name, never the same twice. Durable with the next
  // SubmitJob.
  uint64_t TakeJobNumber() { return jobs_.TakeName(); }
  // `restore`: the checkpoint with which the job begins; its job had the same tables, data and
  // batches.
  // REQUIRES: plan.id was not used before; the plan's ranges hold.
  // Errors: kFailedPrecondition  a job that has not ended writes into the same folders.
  //         kResourceExhausted   too many jobs wait.
  absl::Status SubmitJob(const JobPlan& plan, Instant now, Actions& actions,
                         const std::optional<RestoreFrom>& restore = std::nullopt);
  // Adopts a job of another cluster, which was loaded: it continues from the logs of the servers
  // that live here. REQUIRES: JobTable::CheckAdoption returned OK, then CoreArchive::LoadJob did.
  // Errors (the job is unloaded again):
  //         kFailedPrecondition  it does not run, or has no log; its shards are not all in logs
  //                              here; no worker could run its tasks. Says what is missing.
  absl::Status Adopt(const Adoption& from, Instant now, Actions& actions);
  // Names the resources that the cluster lacks for `job`, even if no other job ran. Empty: it lacks
  // none, or the job does not wait, or not all nodes are heard again after a restart.
  std::string WhyTooSmall(const JobId& job, Instant now) const {
    return placer_.WhyTooSmall(job, now);
  }
  // Stops the job now, if it has not ended. Returns its state.
  // Errors: kNotFound.
  absl::StatusOr<JobState> StopJob(const JobId& job, Instant now, Actions& actions);
  // Stops the job once a checkpoint is complete and the model is written. Returns the checkpoint's
  // id, for SaveCheckpoint.
  // Errors: kNotFound.   kFailedPrecondition  the job does not train.
  absl::StatusOr<CheckpointId> SaveAndStopJob(const JobId& job, Instant now, Actions& actions);
  // Forgets a job that has ended.
  // Errors: kNotFound.   kFailedPrecondition  it has not ended.
  absl::Status DeleteJob(const JobId& job, Instant now, Actions& actions);
  // Answers once the job's revision is above `after_revision` or the job has ended, or after
  // `limit`.
  // Errors: kNotFound.   kResourceExhausted  held_calls_max such calls are held.
  absl::Status WatchJob(Ticket ticket, const JobId& job, uint64_t after_revision,
                        absl::Duration limit, Instant now, Actions& actions);

  // ---- checkpoints
  // Answers once a checkpoint that was begun after this call is complete or abandoned, or after
  // `limit`. `asked`: the same for one that was requested earlier (CheckpointReply::asked), or any
  // later one.
  // Errors: kNotFound.   kFailedPrecondition  the job does not train, or the one that was asked for
  //         was given up.   kResourceExhausted  held_calls_max such calls are held.
  absl::Status SaveCheckpoint(Ticket ticket, const JobId& job, std::optional<CheckpointId> asked,
                              absl::Duration limit, Instant now, Actions& actions);
  // Answers once a snapshot that was begun after this call can be read, or cannot be taken, or
  // after `limit`. `reader`: the reader's own id; a repetition before the snapshot begins counts
  // once.
  // Errors: as above; those of CheckpointClock::AskSnapshot.
  absl::Status OpenSnapshot(Ticket ticket, const JobId& job, uint64_t reader, absl::Duration limit,
                            Instant now, Actions& actions);
  // Accepts the result of a CheckpointPublish. No effect if the job does not wait for it.
  void CheckpointPublished(const JobId& job, CheckpointId id, const absl::Status& status,
                           Instant now, Actions& actions);
  // Accepts the result of a ModelPublish. No effect if the job does not wait for it.
  void ModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                      Actions& actions);
  // Writes the model that the job keeps, because it could not be written, into `folder`; empty: the
  // same folder as before. `one_name`: that folder in the form of JobFolders.
  // Errors: kNotFound.   kFailedPrecondition  the job keeps none; or another job that has not ended
  //         writes into that folder: names it.
  absl::Status ExportJob(const JobId& job, const std::string& folder, const std::string& one_name,
                         Instant now, Actions& actions);
  // Gives the node nothing new and moves its tasks and shards to other nodes, or (`cancel`) ends
  // that. The drain applies to the node's name and outlives its process. Answers when it is safe to
  // stop, or after `limit`.
  // Errors: kNotFound.   kResourceExhausted  held_calls_max such calls are held.
  absl::Status DrainNode(Ticket ticket, const NodeId& node, bool cancel, absl::Duration limit,
                         Instant now, Actions& actions);

  // ---- time
  void Tick(Instant now, Actions& actions);
  Instant NextDeadline() const;

  // ---- views
  const JobTable& jobs() const { return jobs_; }
  absl::StatusOr<JobView> Job(const JobId& job, Instant now) const;  // Errors: kNotFound.
  std::vector<JobView> Jobs(Instant now) const;                      // Ordered by submission.
  std::vector<NodeView> Nodes() const;                               // Servers first, then by name.

 private:
  friend class CoreArchive;  // Saves and loads it.
  class Answerer;            // scheduler_core_settle.cc

  // A node knows decisions that are not in this scheduler's store. Ends all jobs in which it takes
  // part, by its report or by the scheduler's state.
  void OnOlderStore(const NodeReport& report, Instant now, Actions& actions);
  // A server has registered with logs: ends the jobs whose logs know such decisions.
  void EndForLaterLogs(const NodeId& server, absl::Span<const StoredShard> stored, Instant now,
                       Events& events);
  void EndForOlderStore(JobEntry& entry, const std::string& witness, Instant now, Events& events);
  void EndUnstarted(JobEntry& entry, const Failure& failure, Instant now, Events& events);
  void NoteStall(Instant now, Actions& actions);
  // Call after loading, before anything else: live nodes and tasks get their whole time again, and
  // no call is held.
  void Restored(Instant now, Actions& actions);
  void RestoreJob(JobEntry& entry, Instant now);
  void ExpireTasks(JobRun& run, Instant now, Events& events);

  // After every message.
  void Settle(Instant now, Actions& actions);
  void NoteEnded();
  void ForgetOutdated(Instant now, Actions& actions);
  void Forget(const JobId& job, Actions& actions);  // REQUIRES: it has ended.
  void NoteLeft(Actions& actions);
  void NoteHistory(Instant now, Actions& actions);
  void TakeFileWork(Actions& actions);
  void ReleaseSlots();  // No effect unless desired states are outdated: it looks at all nodes.
  void RefreshDesired(Instant now, Actions& actions);
  void AnswerUsers(Instant now, Actions& actions);  // Their calls that wait for news.
  void NoteChanges(Instant now, Actions& actions);
  void TellRevision();

  // Errors: kNotFound, kFailedPrecondition  as SaveCheckpoint.
  absl::StatusOr<JobRun*> RunToSave(const JobId& job);

  void TakeNodeDeaths(size_t first_event, Instant now, Actions& actions);
  // `current`: the node has seen its newest desired state.
  void TakeNodeReport(const Node& node, const NodeReport& report, bool current, Instant now,
                      Actions& actions);
  void NoteClosing(const Node& node, Instant now, Actions& actions);
  // Reports the server to the job, if it has the job's rules. `info`: from its registration.
  static void JoinServer(const Node& node, const NodeInfo& info, const JobEntry& job, Instant now,
                         Events& events);
  std::vector<std::string> LivingLogs() const;

  const Options options_;
  IncarnationCounter incarnations_;
  StoreRevisions revisions_;
  Membership membership_;
  JobTable jobs_;
  JobPlacer placer_;
  DesiredStates desired_;
  std::set<JobId> leaving_;  // Ended jobs whose tasks may still run.
  WaitingCalls waiting_;
  Instant due_ = Instant::InfiniteFuture();  // Earliest deadline since the last Tick.
  // Not yet named in Changes. NoteChanges finds a running job's changes by its versions, too.
  bool nodes_changed_ = false;
  std::set<JobId> changed_jobs_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SCHEDULER_CORE_H_
