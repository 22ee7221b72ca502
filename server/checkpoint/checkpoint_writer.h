// CheckpointWriter: writes the captured shards of one server as parts of a checkpoint, in the
// background, one checkpoint after the other. The rows of a bucket are read piece by piece as they
// are written.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define CAPSTAN_SERVER_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "server/agent/table_source.h"
#include "server/log/task_runner.h"

namespace capstan::server {

class CheckpointWriter final : public CheckpointSink {
 public:
  // Returns the disk that has a checkpoint's folder: this host's, or the scheduler's over the
  // network. The disk outlives the writer.
  using DiskOf = std::function<absl::StatusOr<Disk*>(const std::string& folder)>;
  // `execute`: as TaskRunner's; each checkpoint is one task.
  CheckpointWriter(DiskOf disk_of, TaskRunner::Execute execute)
      : disk_of_(std::move(disk_of)), runner_(std::move(execute)) {}
  // All checkpoints are on one disk, which outlives the writer.
  CheckpointWriter(Disk* disk, TaskRunner::Execute execute)
      : CheckpointWriter([disk](const std::string&) { return disk; }, std::move(execute)) {}

  // Parts are in the order of `shards`. After an error the parts written so far stay: they have no
  // manifest, and are removed with the folder. Errors (to `done`): as DiskOf, ShardFileWriter and
  // CapturedRows.
  void Write(const JobId& job, const v1::CheckpointOrder& order, std::vector<CapturedShard> shards,
             Done done) override;
  void Stop() { runner_.Stop(); }  // Writes what was requested before. Idempotent.

 private:
  absl::StatusOr<std::vector<v1::CheckpointPart>> WriteParts(const JobId& job,
                                                             const v1::CheckpointOrder& order,
                                                             std::vector<CapturedShard> shards);
  static absl::StatusOr<v1::CheckpointPart> WritePart(Disk* disk, const JobId& job,
                                                      const std::string& folder,
                                                      const CapturedShard& captured);

  const DiskOf disk_of_;
  TaskRunner runner_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CHECKPOINT_CHECKPOINT_WRITER_H_
