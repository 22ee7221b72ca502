// DiskTableSource: the daemon's TableSource, which reads shards from checkpoints and from this
// server's logs.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_CHECKPOINT_DISK_TABLE_SOURCE_H_
#define CAPSTAN_SERVER_CHECKPOINT_DISK_TABLE_SOURCE_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/agent/table_source.h"
#include "server/log/server_log.h"

namespace capstan::server {

class DiskTableSource final : public TableSource {
 public:
  // All outlive it. `log` may be null: then no log holds anything. `scheduler` has the checkpoints
  // that the scheduler knows: their manifests are read there, and the parts that this host's disk
  // does not have as the manifest describes them. Null: this host's disk has everything.
  DiskTableSource(Disk* disk, ServerLog* log, Disk* scheduler = nullptr)
      : disk_(disk), log_(log), scheduler_(scheduler) {}

  void BeginMaking() override;
  absl::StatusOr<v1::ShardSnapshot> FromCheckpoint(const std::string& folder,
                                                   const ShardKey& shard) override;
  absl::Status FromLog(const JobId& job, const ShardKey& shard, ShardReader& reader) override;

 private:
  Disk* const disk_;
  ServerLog* const log_;
  Disk* const scheduler_;
  absl::Mutex mutex_;
  // The folder that was read last ("": none), its job and its parts. They are kept because shards
  // of one checkpoint are asked for one after the other.
  std::string folder_ ABSL_GUARDED_BY(mutex_);
  JobId job_ ABSL_GUARDED_BY(mutex_);
  std::map<ShardKey, v1::CheckpointPart> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CHECKPOINT_DISK_TABLE_SOURCE_H_
