// SnapshotCalls: moments of a job that this server keeps for readers, and the calls of those
// readers.
//
// JobSnapshots decides which moments are kept, and what an answer contains; here its calls get the
// job's mutex, and an answer waits until what it shows is committed.
// Called by ServerAgent (Keep) and ParameterService.
// Thread safety: thread-safe. All functions hold the job's mutex exclusively.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_SNAPSHOT_CALLS_H_
#define CAPSTAN_SERVER_ENGINE_JOB_SNAPSHOT_CALLS_H_

#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/engine/job/commit_pipeline.h"
#include "server/engine/job/job_state.h"
#include "server/engine/waiting_calls.h"

namespace capstan::server {

class SnapshotCalls {
 public:
  // Called exactly once per call, from any thread, under no lock of the job.
  using Done = WaitingCalls::Done;
  using CallId = WaitingCalls::CallId;

  SnapshotCalls(JobState* state, CommitPipeline* commits) : state_(state), commits_(commits) {}

  // Errors of all of these: as JobSnapshots's methods.
  // Keeps all shards whose primary is here as they are. Called when the job is quiet.
  // Errors: kFailedPrecondition  one is not at the version that the order names.
  absl::Status Keep(const v1::CheckpointOrder& order);
  // Answers once what is read is committed: a snapshot may contain unacknowledged pushes of a task
  // that died, which may be lost with this server. Returns the id to cancel the call by
  // (JobCalls::Cancel) if it waits.
  std::optional<CallId> Read(const v1::ReadSnapshotRequest& request,
                             v1::ReadSnapshotResponse* response, Done done);
  void Close(const v1::CloseSnapshotRequest& request);
  std::vector<CheckpointId> open() const;  // Snapshots that can be read.

 private:
  // Checks that every one of `keys` is at the version that the order names, if it names one.
  absl::Status CheckVersionsLocked(const v1::CheckpointOrder& order,
                                   const std::vector<ShardKey>& keys) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);

  JobState* const state_;
  CommitPipeline* const commits_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_SNAPSHOT_CALLS_H_
