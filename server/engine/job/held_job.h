// HeldJob: one job's shards on this server, in parts that share a state: its calls, its replicas,
// its snapshots and captures, and what the scheduler assigns. Knows protobuf, not gRPC.
//
//   ValueCalls ──► calls() ──────────┐
//   primaries ───► replica_calls() ──┤             ┌── JobState: shards, waiting calls, locks
//   readers ─────► snapshot_calls() ─┼──► commits()┤
//   ServerAgent ─► assignment() ─────┘             └── replicas and log
//          '─────► captures() ───────────────────────► checkpoints
//
// HeldJob itself does what concerns all parts: time, the end of the job, and what is reported of
// it. Callers use the parts directly. Called by HeldJobs and ServerAgent.
// Thread safety: thread-safe. JobState says which locks there are, and their order.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_HELD_JOB_H_
#define CAPSTAN_SERVER_ENGINE_JOB_HELD_JOB_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/security/capability.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/core/replication/held_shard.h"
#include "server/engine/job/commit_pipeline.h"
#include "server/engine/job/job_assignment.h"
#include "server/engine/job/job_calls.h"
#include "server/engine/job/job_captures.h"
#include "server/engine/job/job_state.h"
#include "server/engine/job/replica_calls.h"
#include "server/engine/job/snapshot_calls.h"
#include "server/store/tables/shard_factory.h"

namespace capstan::server {

// A shard as a server holds it, and the term in which it was made or received.
struct HeldCopy {
  ShardKey shard;
  Term term;
  v1::ShardSnapshot snapshot;
};

class HeldJob : public std::enable_shared_from_this<HeldJob> {
 public:
  using Options = JobState::Options;
  using Done = JobCalls::Done;
  using CallId = JobCalls::CallId;

  // Holds no shard until the first routing table. The factory is shared with the agent's maker.
  // Must be owned by a shared_ptr: answers of replicas may come after the job was dropped.
  HeldJob(Options options, std::shared_ptr<const ShardFactory> factory);

  JobCalls& calls() { return calls_; }
  ReplicaCalls& replica_calls() { return replica_calls_; }
  SnapshotCalls& snapshot_calls() { return snapshot_calls_; }
  JobCaptures& captures() { return captures_; }
  JobAssignment& assignment() { return assignment_; }
  const JobAssignment& assignment() const { return assignment_; }
  CommitPipeline& commits() { return commits_; }

  // Does what is due; returns when it must be called again. The job may request an earlier time by
  // options.schedule_tick, but no later one, even if the returned deadline no longer exists by
  // then. So the caller must not use NextDeadline() instead of the returned time.
  Instant Tick(Instant now);
  Instant NextDeadline() const;
  void Fail(const absl::Status& status);   // The tables are lost: sets failure(), ends every call.
  void Close(const absl::Status& reason);  // Ends every waiting call, and refuses later ones.

  const JobId& job() const { return state_.options.job; }
  const std::string& unique_id() const { return state_.options.unique_id; }
  const std::string& owner() const { return state_.options.owner; }
  Incarnation incarnation() const { return state_.options.incarnation; }
  // Null in tests and benchmarks that hold a job by hand.
  const std::optional<CapabilityKey>& capability_key() const {
    return state_.options.capability_key;
  }
  const ShardFactory& factory() const { return *state_.factory; }
  absl::Status failure() const;
  // Whether the logs of all shards whose primary is here say durably that this incarnation has
  // them. True without a log.
  bool logs_begun() const;
  // Highest version of a shard whose primary is here; 0: there is none.
  Version version_max() const;
  std::vector<HeldShard> shards() const;  // Shards whose primary is here, ordered by key.
  // The replicas of these shards, as TableState reports them.
  std::vector<v1::ReplicaState> ReplicaStates() const;
  std::vector<v1::HeldTable> Describe() const;
  // Every shard that is held here and can be read, as primary or as replica, for comparisons of
  // copies.
  std::vector<HeldCopy> Copies() const;

 private:
  // Ends every call, and every answer of a replica that waits for the log.
  void EndAllLocked(const absl::Status& status, EndedCalls* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  Instant NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  JobState state_;
  CommitPipeline commits_;
  JobCalls calls_;
  ReplicaCalls replica_calls_;
  SnapshotCalls snapshot_calls_;
  JobCaptures captures_;
  JobAssignment assignment_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_HELD_JOB_H_
