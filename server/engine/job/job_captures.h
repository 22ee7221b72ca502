// JobCaptures: captures a job's shards at one moment, to be read while the job goes on, for
// checkpoints, replicas and the log.
//
// Dense shards are copied; rows of buckets are pinned and stay where they are, and are read piece
// by piece later. A reader that had to wait for a shard's lock may read for as long, so that busy
// jobs do not starve it.
// Called by ServerAgent (Capture) and, through ShardLink, by CommitPipeline (CaptureAll). The
// holder of captured rows reads them on a thread of its own.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_JOB_CAPTURES_H_
#define CAPSTAN_SERVER_ENGINE_JOB_JOB_CAPTURES_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/engine/job/job_state.h"
#include "server/store/kept_rows.h"
#include "server/store/tables/captured_shard.h"

namespace capstan::server {

class JobCaptures {
 public:
  // `fail`: called under no lock if rows that CaptureAll has pinned cannot be read.
  JobCaptures(JobState* state, std::function<void(const absl::Status&)> fail)
      : state_(state), fail_(std::move(fail)) {}

  // Captures all shards whose primary is here, or what has changed of them since the order's base.
  // They are of one moment because it is called when the job is quiet: between shards it leaves the
  // mutex to others.
  // Errors: a shard cannot be read.
  absl::StatusOr<std::vector<CapturedShard>> Capture(const v1::CheckpointOrder& order);
  // Captures all of a shard as it is now. If its rows are damaged, the job fails.
  // REQUIRES: the caller holds the job's mutex and the shard's.
  absl::StatusOr<CapturedShard> CaptureAll(const ShardKey& key) ABSL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  class Rows;
  enum class IfDamaged { kReaderFails, kJobFails };

  // The shard's state without its rows. REQUIRES: the shard's lock is held.
  CapturedShard CapturedLocked(const ShardKey& key,
                               v1::ShardSnapshot copy) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // The shard's rows; null if it has none. REQUIRES: the shard's lock is held.
  std::shared_ptr<Rows> RowsLocked(const ShardKey& key, PinId pin,
                                   const v1::ShardSnapshot& snapshot,
                                   IfDamaged if_damaged) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Reads the next piece of `first`, and perhaps more of it and of the rows that follow it.
  absl::Status ReadTurn(Rows& first);
  void Unpin(const ShardKey& key, PinId pin);

  JobState* const state_;
  const std::function<void(const absl::Status&)> fail_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_JOB_CAPTURES_H_
