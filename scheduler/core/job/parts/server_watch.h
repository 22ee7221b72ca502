// ServerWatch: watches the servers of a job: which hold its shards by the newest routing table,
// what follows when they die, fail, stall or are drained, and how lost shards come back.
//
//   HELD --Settle: a primary is dead, or is to change--> HELD by a new table
//   HELD --Settle: shards are lost--> WAITING --a full log of each of them is here--> RESTORING
//     |                                  |----it is time to, and there is a checkpoint:
//     |                                  |    all tasks end, PLACING again-----------> RESTORING
//     |                                  \--neither, for too long--> the job fails
//     \<-------- Settle: all servers have made their tables -------------------------------/
//   RESTORING --a server cannot read the checkpoint: TryOlderCheckpoint--> RESTORING an older one
//   a server does not apply what it is sent, for server_limit--> the job fails
//
// ShardMap decides about the table, JobRecovery when to go back. Called by JobRun, which ends the
// job for the failures that are returned here, and advances it after each fact.
// Thread safety: thread-compatible.
// Invariant: the routing table is the shard map's as of the last Settle or the last way back.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_SERVER_WATCH_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_SERVER_WATCH_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/parts/job_checkpoints.h"
#include "scheduler/core/job/parts/job_export.h"
#include "scheduler/core/job/parts/job_recovery.h"
#include "scheduler/core/job/parts/job_shared.h"
#include "scheduler/core/job/parts/job_training.h"
#include "scheduler/core/job/parts/task_watch.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

class ServerWatch {
 public:
  // The parts that take part when the job goes back.
  struct Parts {
    JobCheckpoints* checkpoints;
    JobTraining* training;
    JobExport* exporter;
    TaskWatch* task_watch;
  };
  static constexpr Term kRestoreTerm{2};  // The first term of a job that begins with a checkpoint.

  // `restore`: the job begins there; then the term of every shard of its table is kRestoreTerm.
  ServerWatch(JobShared* job, const Parts& parts, std::optional<RestoreFrom> restore);

  // ---- facts
  void OnJoined(const ServerRef& server, absl::Span<const StoredShard> stored, bool draining,
                Events& events);
  // Its shards get another primary from `fenced_at` on.
  void OnDied(const NodeId& server, const std::string& why, Instant fenced_at, Events& events);
  // It lives and holds nothing of this job any more. REQUIRES: the job is not in FINISHING.
  void OnFailed(const NodeId& server, const std::string& why, Instant now, Events& events);
  // Accepts a report without a failure.
  void OnReport(const NodeId& server, const TableReport& report, Instant now);
  // Returns whether a server that reports `failure` has lost its shards. Others may have copies or
  // logs.
  bool HasLostShards(const Failure& failure) const;
  // The job was another cluster's: all its servers are gone.
  void Adopt(Instant now);
  void OnTraining() { recovery_.OnTraining(); }  // Work is leased.

  // ---- what follows
  // Makes the next table, if it is time for one, and brings back lost shards. Returns the failure
  // with which the job must end.
  std::optional<Failure> Settle(Instant now, Events& events);
  std::optional<Failure> CheckServers(Instant now) const;  // Fails if one stalls for too long.
  // If a server cannot read the checkpoint from which it restores shards, the job goes back to the
  // one before. The checkpoint that the job began with is never forgotten. False: the job does not
  // restore such a checkpoint, or there is no other one.
  bool TryOlderCheckpoint(const NodeId& server, const std::string& why, Instant now,
                          Events& events);
  // Goes back to the best epoch's checkpoint, as after a loss of all shards, but does not train
  // again. False: there are too few servers now. REQUIRES: JobCheckpoints::MustReturn().
  bool ReturnToBest(Instant now, Events& events);
  void EndRecovery() { recovery_.End(); }  // The tables are not needed any more.
  Instant NextDeadline() const;
  void RestartLimits(Instant now) { recovery_.RestartLimits(now); }

  // ---- views
  const JobRecovery& recovery() const { return recovery_; }
  RestoreSource source() const;
  // The table names the server, in this or an earlier incarnation.
  bool Uses(const NodeId& server) const { return job_.shards.routing().Names(server); }
  // The log on that server's disk may be all that is left of a shard.
  bool AwaitsLogOf(const NodeId& server) const {
    return recovery_.ReadsLogs() && job_.shards.NeedsLogOf(server);
  }
  // A server wrote the log for this job, by order of a scheduler of this cluster.
  bool HasWritten(const StoredShard& log) const;

  // ---- durable state, in the form of scheduler/store/archive.h; beside the routing table
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(recovery_);
    CheckLoaded(archive, [this] { return Check(); });
  }

 private:
  absl::Status Check() const;  // Errors: kDataLoss  the job cannot begin at that checkpoint.
  void TakeRouting(Instant now, Events& events);
  std::optional<Failure> BeginRecovery(Instant now, Events& events);
  std::optional<Failure> Recover(Instant now, Events& events);
  // A checkpoint that is being published removes others when it is complete. A job whose shards are
  // lost waits until the remaining ones are known.
  bool AwaitsManifest() const {
    return checkpoints_.all().state() == Checkpoints::State::kPublishing;
  }
  Failure LostShards() const;
  bool GoBack(Instant now, Events& events);
  void EndTasks(Instant now, Events& events);
  void Place(Instant now, Events& events);      // All shards have servers again in a new table.
  const RestoreFrom* NewestCheckpoint() const;  // Null: none. Where the job began counts as one.

  JobShared& job_;
  JobCheckpoints& checkpoints_;
  JobTraining& training_;
  JobExport& exporter_;
  TaskWatch& task_watch_;
  JobRecovery recovery_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_SERVER_WATCH_H_
