// PosixDisk: the file system of this machine, as far as this process may use it (path_access.h).
//
// Errors: beside those of Disk kPermissionDenied, if a link leads out of the allowed folders. Calls
// that a signal interrupted are repeated, short writes are completed, files do not pass to child
// processes. After a failed Sync of a file every later one fails with the same error. Thread
// safety: as Disk.
#ifndef CAPSTAN_COMMON_STORAGE_POSIX_DISK_H_
#define CAPSTAN_COMMON_STORAGE_POSIX_DISK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"

namespace capstan {

class PosixDisk final : public Disk {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::string> Read(const std::string& path, int64_t bytes_max) override;
  absl::StatusOr<std::string> ReadPart(const std::string& path, int64_t begin,
                                       int64_t bytes) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status MakeFolder(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_POSIX_DISK_H_
