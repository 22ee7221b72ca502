// SchedulerCore: the scheduler's decisions. Messages of daemons, tasks and users come in, answers
// and events come out; the shell (scheduler/state/durable_state.h) carries them.
//
// Sync calls are held: the core keeps a call's ticket until there is news for its caller or the
// sync interval has passed, and then puts the answer into Actions. Every ticket that a method
// accepted (it returned OK) is answered exactly once, then or later.
//
// What it decides is durable before anybody hears of it: each step names what it changed
// (Actions::changes), and a core that died is made again from what was written
// (core_archive.h), after which daemons and tasks go on as if it had been away.
//
// Pure: no clock, threads, sockets or logging. Thread safety: thread-compatible.
// Invariants: (1) a task slot holds at most one task; a rank has at most one incarnation.
//             (2) jobs start in the order of their submission.
//             (3) no server becomes primary within read_lease of the last contact with the one
//                 before it, unless that one is known to ask its replicas before each read, or
//                 becomes a replica without which nothing is committed.
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
    // How long those that live may take to find a scheduler that is back, before their leases
    // count: mostly the longest pause between two attempts (common/net/node/agent_timing.h),
    // behind a channel's own pause (common/net/grpc/channel.cc).
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
    size_t held_calls_max = 10000;  // Calls of users that are held, of each kind.
    // Progress that tasks would report again is written this often, if nothing else is.
    absl::Duration progress_interval = absl::Seconds(1);
    // Servers keep a record of where a job with a log stands beside the log. A new one is sent with
    // each new routing table, otherwise no more often than this, and a millisecond for each shard
    // (DesiredStates): it comes with the whole table. By default none is sent.
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
  // A number for the next job's name, never the same again. Durable with the next SubmitJob.
  uint64_t TakeJobNumber() { return jobs_.TakeName(); }
  // `restore`: where the job begins, of a job with the same tables, data and batches.
  // REQUIRES: plan.id was not used before; the plan's ranges hold.
  // Errors: kFailedPrecondition  a job that has not ended writes into the same folders.
  //         kResourceExhausted   too many jobs wait.
  absl::Status SubmitJob(const JobPlan& plan, Instant now, Actions& actions,
                         const std::optional<RestoreFrom>& restore = std::nullopt);
  // Takes up a job that was loaded, as of another cluster: it goes on from the logs of the servers
  // that live here. REQUIRES: JobTable::CheckAdoption was ok, and CoreArchive::LoadJob since.
  // Errors (the job is not known any more, nothing else has changed):
  //         kFailedPrecondition  it does not run; its shards are not all in logs here; no worker
  //                              could run its tasks. Says what is missing.
  absl::Status Adopt(const Adoption& from, Instant now, Actions& actions);
  // Names the resources that the cluster lacks for `job`, even if no other job ran. Empty: it lacks
  // none, or the job does not wait, or not all nodes are heard again after a restart.
  std::string WhyTooSmall(const JobId& job, Instant now) const {
    return placer_.WhyTooSmall(job, now);
  }
  // Errors: kNotFound.
  absl::StatusOr<JobState> StopJob(const JobId& job, Instant now, Actions& actions);
  // The same once a checkpoint is complete and the model is written. The checkpoint's id, for
  // SaveCheckpoint.
  // Errors: kNotFound.   kFailedPrecondition  the job does not train.
  absl::StatusOr<CheckpointId> SaveAndStopJob(const JobId& job, Instant now, Actions& actions);
  // Forgets a job that has ended.
  // Errors: kNotFound.   kFailedPrecondition  it has not ended.
  absl::Status DeleteJob(const JobId& job, Instant now, Actions& actions);
  // Answers once the job's revision is above `after_revision`, or after `limit`.
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
  // after `limit`. `reader`: its name for itself; a repetition is the same question.
  // Errors: as above; those of CheckpointClock::AskSnapshot.
  absl::Status OpenSnapshot(Ticket ticket, const JobId& job, uint64_t reader, absl::Duration limit,
                            Instant now, Actions& actions);
  // Accepts the result of a CheckpointPublish. No effect if the job does not wait for it.
  void CheckpointPublished(const JobId& job, CheckpointId id, const absl::Status& status,
                           Instant now, Actions& actions);
  // Accepts the result of a ModelPublish. No effect if the job does not wait for it.
  void ModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                      Actions& actions);
  // Writes the model that the job keeps, since it could not be written, into `folder`; empty: where
  // it was to be. `one_name`: of that folder, as JobFolders has them.
  // Errors: kNotFound.   kFailedPrecondition  the job keeps none; or another job that has not ended
  //         writes into that folder: names it.
  absl::Status ExportJob(const JobId& job, const std::string& folder, const std::string& one_name,
                         Instant now, Actions& actions);
  // Gives the node nothing new and moves what it has elsewhere, or (`cancel`) takes that back. The
  // wish is the name's and outlives the process. Answers when it is safe to stop, or after `limit`.
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
  // After loading all, before anything else: the live get their whole time again, nothing is held.
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
  void ReleaseSlots();  // Looks at the tasks of all nodes only if a job wants others than before.
  void RefreshDesired(Instant now, Actions& actions);
  void AnswerUsers(Instant now, Actions& actions);  // Their calls that wait for news.
  void NoteChanges(Instant now, Actions& actions);
  void TellRevision();

  // Errors: kNotFound, kFailedPrecondition  as SaveCheckpoint.
  absl::StatusOr<JobRun*> RunToSave(const JobId& job);

  void TakeNodeDeaths(size_t first_event, Instant now, Actions& actions);
  // `current`: it has seen its newest desired state.
  void TakeNodeReport(const Node& node, const NodeReport& report, bool current, Instant now,
                      Actions& actions);
  void NoteClosing(const Node& node, Instant now, Actions& actions);
  // Tells a job that the server is there, if it has the job's rules. `info`: of the registration.
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
  Instant due_ = Instant::InfiniteFuture();  // When the timer was to come, since it came last.
  // Since Changes named them last; those of a running job are told by its versions.
  bool nodes_changed_ = false;
  std::set<JobId> changed_jobs_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SCHEDULER_CORE_H_
