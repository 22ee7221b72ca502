// CheckpointWriter: writes the captured shards of one server as parts of a checkpoint, in the
// background, one checkpoint after the other. The rows of a bucket are read piece by piece as they
// are written.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_STORAGE_CHECKPOINT_WRITER_H_
#define CAPSTAN_SERVER_STORAGE_CHECKPOINT_WRITER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "server/agent/table_source.h"
#include "server/storage/task_runner.h"

namespace capstan::server {

class CheckpointWriter final : public CheckpointSink {
 public:
  // `disk` outlives it. `execute`: as TaskRunner's; a task a checkpoint.
  CheckpointWriter(Disk* disk, TaskRunner::Execute execute)
      : disk_(disk), runner_(std::move(execute)) {}

  // Parts are in the order of `shards`. After an error those written so far stay: they have no
  // manifest, and go with the folder. Errors (to `done`): as ShardFileWriter and CapturedRows.
  void Write(const JobId& job, const v1::CheckpointOrder& order, std::vector<CapturedShard> shards,
             Done done) override;
  void Stop() { runner_.Stop(); }  // Writes what was asked for. Idempotent.

 private:
  absl::StatusOr<std::vector<v1::CheckpointPart>> WriteParts(const JobId& job,
                                                             const v1::CheckpointOrder& order,
                                                             std::vector<CapturedShard> shards);
  absl::StatusOr<v1::CheckpointPart> WritePart(const JobId& job, const std::string& folder,
                                               const CapturedShard& captured);

  Disk* const disk_;
  TaskRunner runner_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORAGE_CHECKPOINT_WRITER_H_
