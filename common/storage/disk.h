// Disk: the file operations that logs and checkpoints are made of; real (posix_disk.h) or
// simulated, with faults (sim_disk.h).
//
// Nothing is durable before Sync (of a file's bytes) and SyncFolder (of the names in a folder) have
// returned OK. After a failed Sync the file's unsynced bytes are in doubt: their writer must not
// call them durable, and must not sync again in hope (see README.md).
// Thread safety: a Disk is thread-safe; a file is thread-compatible.
#ifndef CAPSTAN_COMMON_STORAGE_DISK_H_
#define CAPSTAN_COMMON_STORAGE_DISK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

// All errors name the path. kNotFound: no such file or folder. kResourceExhausted: no space.
// kUnavailable: any other failure of the disk.
class WritableFile {
 public:
  virtual ~WritableFile() = default;  // Closes; what was not synced may be lost.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  virtual absl::Status Sync() = 0;
};

class Disk {
 public:
  virtual ~Disk() = default;

  // Makes `path`, or empties it if it exists.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // The whole file. Errors: also kResourceExhausted if it is larger than bytes_max.
  virtual absl::StatusOr<std::string> Read(const std::string& path, int64_t bytes_max) = 0;
  // Exactly [begin, begin + bytes) of it. Errors: also kDataLoss if it ends before that.
  virtual absl::StatusOr<std::string> ReadPart(const std::string& path, int64_t begin,
                                               int64_t bytes) = 0;
  // Within one folder; replaces `to`, atomically.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;  // A file, or an empty folder.
  // Makes the folder and its parents; they may exist. Its name is durable once this has returned
  // OK.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Names (not paths) in a folder, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_DISK_H_
