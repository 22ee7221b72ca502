// WriteFileAtomically: replaces a small file as a whole. Thread safety: one writer for each path.
#ifndef CAPSTAN_SCHEDULER_WRITE_FILE_H_
#define CAPSTAN_SCHEDULER_WRITE_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace capstan::scheduler {

// Writes `<path>.tmp` and renames it, so a reader sees the old contents or the new ones, never a
// part. The new contents are not synced to the disk.
// Errors: kUnavailable  names the file and the cause.
absl::Status WriteFileAtomically(const std::string& path, const std::string& contents);

// Creates a folder and its parents. Errors: kUnavailable  names the folder and the cause.
absl::Status MakeFolder(const std::string& path);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_WRITE_FILE_H_
