// WriteFileAtomically: replaces a small file whole. Thread safety: a function; one writer a path.
#ifndef CAPSTAN_SCHEDULER_WRITE_FILE_H_
#define CAPSTAN_SCHEDULER_WRITE_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace capstan::scheduler {

// Writes `<path>.tmp` and renames it: a reader sees the old contents or the new, never a part.
// Errors: kUnavailable  names the file and the cause.
absl::Status WriteFileAtomically(const std::string& path, const std::string& contents);

// Makes a folder and those above it. Errors: kUnavailable  names the folder and the cause.
absl::Status MakeFolder(const std::string& path);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_WRITE_FILE_H_
