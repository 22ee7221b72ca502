// CommitPipeline: does what follows a change of a job's shards on their primary: replicas and the
// log get its records; what they have confirmed is committed; replies that waited for that leave.
//
// Every operation of a job ends here: it calls SettleLocked under the job's mutex, and Perform once
// it has released that.
//
//   change --> SettleLocked --> messages, log, replies that may leave, reports, deadlines
//                  ^                |
//                  |                '--> JobEffects --> Perform, under no lock
//                  '-- answers of replicas, OnLogged, TickLocked
//
// The decisions are ShardPrimary's, one shard at a time (ShardLink carries them out); the
// pipeline bounds what all shards of the job send together.
// Called by the other parts of the job, by the transport and, through HeldJobs, by the log.
// Thread safety: thread-safe; functions named Locked need the job's mutex (JobState).
// Invariant: at most kInstallsInFlightMax whole shards are on their way to one server.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_COMMIT_PIPELINE_H_
#define CAPSTAN_SERVER_ENGINE_JOB_COMMIT_PIPELINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/replication/shard_primary.h"
#include "server/engine/job/call_sink.h"
#include "server/engine/job/job_state.h"
#include "server/engine/replica_transport.h"
#include "server/engine/shard_link.h"

namespace capstan::server {

class CommitPipeline {
 public:
  // Whole shards on their way to one server's replicas at a time: each is a copy of a dense shard,
  // or rows that are kept as they were until they have left. A slow link delays its own only.
  static constexpr int kInstallsInFlightMax = 4;

  explicit CommitPipeline(JobState* state) : state_(state) {}
  CommitPipeline(const CommitPipeline&) = delete;
  CommitPipeline& operator=(const CommitPipeline&) = delete;

  // Makes the barriers that pulls wait for. Then, for all shards that were touched, releases
  // replies that may leave, and collects messages, log entries, reports and deadlines.
  void SettleLocked(CallSink& sink, JobEffects* effects) ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // Gives the log the snapshots of other shards that are due, once there is room for them.
  void SettleLogsLocked(JobEffects* effects) ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // Settles what an operation has begun for a call; returns the call's id if it waits.
  std::optional<JobState::CallId> FinishLocked(JobState::CallId call, const absl::Status& status,
                                               CallSink& sink, JobEffects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // Finds replicas that have not answered for too long, and sends what is to be sent again.
  void TickLocked(Instant now, JobEffects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  Instant NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  // REQUIRES: the caller holds no lock.
  void Perform(JobEffects* effects) ABSL_LOCKS_EXCLUDED(state_->mutex);

  // The shard's log has everything of `term` up to `position`.
  void OnLogged(const ShardKey& shard, Term term, Position position);

 private:
  using Outgoing = JobEffects::Outgoing;

  void PerformAlone(JobEffects* effects) ABSL_LOCKS_EXCLUDED(state_->mutex);
  // Messages to one server are sent together, except whole shards.
  void Send(const std::vector<Outgoing>& sends);
  void SendTogether(std::vector<Outgoing> sends);
  void OnProgress(const ShardKey& key, const ReplicaMessage& message, int64_t bytes);
  void OnInstalled(const ShardKey& key, const ReplicaMessage& message, const absl::Status& status,
                   const v1::ReplicateResponse& response);
  // `sent`: the messages whose outcomes have come, or come later.
  void OnReplicated(const std::vector<Outgoing>& sent, absl::Span<const ReplicaOutcome> outcomes);
  void OnAnswerLocked(const ShardKey& key, const ReplicaMessage& message,
                      const absl::Status& status, const v1::ReplicateResponse& response,
                      JobEffects* effects) ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // REQUIRES for these two: the shard's lock is held.
  void SettleLinkLocked(ShardLink& link, JobEffects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  void SendLocked(ShardLink& link, JobEffects* effects) ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);

  // Returns the function that says whether a whole shard may leave for a server. It is called under
  // installs_mutex_.
  ShardPrimary::MayInstall MayInstall() const;
  void EndInstall(const FollowerKey& to) ABSL_LOCKS_EXCLUDED(installs_mutex_);
  std::optional<ReplicaMessage> NextMessage(ShardLink& link) ABSL_LOCKS_EXCLUDED(installs_mutex_);
  Instant NextDeadlineOf(const ShardPrimary& primary) const ABSL_LOCKS_EXCLUDED(installs_mutex_);

  JobState* const state_;
  mutable absl::Mutex installs_mutex_;  // Is locked after a shard's mutex.
  // Installs to each server that has any; at most kInstallsInFlightMax.
  std::map<FollowerKey, int> installs_in_flight_ ABSL_GUARDED_BY(installs_mutex_);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_COMMIT_PIPELINE_H_
