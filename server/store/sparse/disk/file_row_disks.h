// FileRowDisks: the daemon's RowDisks, which keep rows that have no room in memory in files of this
// process (row_log.h).
//
// The files only extend memory: nothing is synced, and nothing outlives the process. Buckets whose
// rows have the same size share a file.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_DISK_FILE_ROW_DISKS_H_
#define CAPSTAN_SERVER_STORE_SPARSE_DISK_FILE_ROW_DISKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/store/row_disk.h"
#include "server/store/sparse/disk/spill_file.h"

namespace capstan::server {

class FileRowDisks final : public RowDisks {
 public:
  // Takes `folder` for itself: what earlier processes left in it is removed (own_folder.h).
  // Errors: kFailedPrecondition  somebody else's files are in it.
  //         kUnavailable, kResourceExhausted  as of the disk; names the folder.
  static absl::StatusOr<std::unique_ptr<FileRowDisks>> Create(const std::string& folder);

  // Errors: as Create.
  absl::StatusOr<std::unique_ptr<RowDisk>> Open(int64_t payload_bytes) override;

 private:
  explicit FileRowDisks(std::string folder) : folder_(std::move(folder)) {}

  const std::string folder_;
  absl::Mutex mutex_;
  // Keyed by the size of the payloads. A file is removed with the last bucket that has rows in it.
  absl::btree_map<int64_t, std::weak_ptr<SpillFile>> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_DISK_FILE_ROW_DISKS_H_
