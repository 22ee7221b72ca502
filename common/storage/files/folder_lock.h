// FolderLock: keeps a folder for one process; a second one is refused, not made to wait.
//
// The lock ends with the process however it ends. Its file, `lock`, stays and names the holder.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_FOLDER_LOCK_H_
#define CAPSTAN_COMMON_STORAGE_FILES_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

class FolderLock {
 public:
  // `folder` exists.
  // Errors: kFailedPrecondition  another process (or this one) has it; the message names it.
  //         kUnavailable         the lock file cannot be made.
  static absl::StatusOr<FolderLock> Take(const std::string& folder);

 private:
  explicit FolderLock(Descriptor file) : file_(std::move(file)) {}

  Descriptor file_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_FOLDER_LOCK_H_
