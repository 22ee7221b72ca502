// ReplicaCalls: messages from the primaries of a job's shards to the replicas on this server:
// records to replay, and whole shards to install.
//
// Each message is answered with what the replica holds then, once that is in the log, if the job
// has one. Whether a message is carried out, ignored or refused is ShardReplication's decision.
// Called by ParameterService (records) and InstallStream (whole shards).
// Thread safety: thread-safe. Records of several messages are replayed at the same time. An install
// holds the job's mutex exclusively, but its shard is made without it.
// Invariant: a whole shard takes the place of another only once all of its rows have come.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_REPLICA_CALLS_H_
#define CAPSTAN_SERVER_ENGINE_JOB_REPLICA_CALLS_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/replication/shard_replication.h"
#include "server/engine/install_memory.h"
#include "server/engine/job/commit_pipeline.h"
#include "server/engine/job/job_state.h"
#include "server/engine/shard_engine.h"
#include "server/engine/shard_link.h"
#include "server/engine/waiting_calls.h"
#include "server/store/tables/table_shard.h"

namespace capstan::server {

class ReplicaCalls {
 public:
  // Called exactly once per call, from any thread, under no lock of the job.
  using Done = WaitingCalls::Done;

  ReplicaCalls(JobState* state, CommitPipeline* commits) : state_(state), commits_(commits) {}

  // Records or a whole shard. The caller has made sure that the message comes from the server that
  // it names as its sender. Errors (to `done`):
  //         kFailedPrecondition  the sender is no longer primary.
  //         kPermissionDenied    by this server's routing, another server is primary in that term.
  //         kNotFound            the shard has not been given to this server yet.
  //         kInvalidArgument     a record that does not fit the shard.
  //         kDataLoss            a snapshot that does not fit the shard, or is not whole.
  void Replicate(const v1::ReplicateRequest& request, v1::ReplicateResponse* response, Done done);
  // The same for several messages with records, in order; `done` is called once each has its
  // result. Errors: kInvalidArgument  too many messages, or one of another job: none is carried
  // out.
  void ReplicateBatch(const v1::ReplicateBatch& batch, v1::ReplicateBatchAnswer* answer, Done done);
  // The same in two steps, for a whole shard whose rows come later. BeginInstall makes the shard
  // aside, without the mutex; the caller restores the rows to it (TableShard::RestoreMore) and
  // passes it to Install. None: it is not wanted; Install then reports why. REQUIRES: the request
  // has an install. Errors: kDataLoss, as above; kResourceExhausted, no memory, or beyond the
  // budget.
  absl::StatusOr<std::optional<TableShard>> BeginInstall(const v1::ReplicateRequest& request) const;
  void Install(const v1::ReplicateRequest& request, std::optional<TableShard> made,
               v1::ReplicateResponse* response, Done done);

  const std::shared_ptr<InstallMemory>& install_memory() const { return state_->install_memory; }

 private:
  void Replay(const v1::ReplicateRequest& request, v1::ReplicateResponse* response, Done done);
  // Same as Replay, under the lock; the call ends with `effects`.
  void ReplayLocked(const v1::ReplicateRequest& request, v1::ReplicateResponse* response, Done done,
                    JobEffects* effects) ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  absl::StatusOr<ShardEngine*> EngineOfReplicaLocked(const ShardKey& key) const
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // REQUIRES for these two: the shard's lock is held.
  absl::Status InstallLocked(const v1::ReplicateRequest& request, ShardLink& link,
                             std::optional<TableShard> made, JobEffects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  absl::Status ReplayRecordsLocked(const v1::ReplicateRequest& request, ShardLink& link)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  ReplicaVerdict Consider(const v1::ReplicateRequest& request, const ShardLink& link) const;
  // Checks that the verdict can be carried out, or was before.
  absl::Status CheckVerdictLocked(const v1::ReplicateRequest& request,
                                  const ReplicaVerdict& verdict, const ShardLink& link) const
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // Ends the call: with what is held, once the log has it, or with the error `status`.
  void AnswerLocked(const v1::ReplicateRequest& request, const absl::Status& status,
                    v1::ReplicateResponse* response, Done done, JobEffects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);

  JobState* const state_;
  CommitPipeline* const commits_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_REPLICA_CALLS_H_
