// ReadChecked: reads a file of a checkpoint, and reads it again if that fails or the content is
// wrong.
//
// The fault may lie in the transfer alone; without another attempt, the job would go back to an
// older checkpoint, or end.
// Thread safety: a pure function but for the disk.
#ifndef CAPSTAN_COMMON_CHECKPOINT_READ_CHECKED_H_
#define CAPSTAN_COMMON_CHECKPOINT_READ_CHECKED_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status/annotate.h"
#include "common/storage/disk.h"

namespace capstan {

inline constexpr int kReadAttempts = 3;

// Returns the result of `decode` for the file's bytes, in up to kReadAttempts attempts. A file that
// is missing or has more than `bytes_max` bytes is not read again.
// Errors: those of `decode`, with the path. The disk's.
template <typename Decoded>
absl::StatusOr<Decoded> ReadChecked(
    Disk& disk, const std::string& path, int64_t bytes_max,
    const std::function<absl::StatusOr<Decoded>(std::string)>& decode) {
  absl::Status status;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    absl::StatusOr<std::string> file = disk.Read(path, bytes_max);
    status = file.status();
    if (absl::IsNotFound(status) || absl::IsResourceExhausted(status)) return status;
    if (!file.ok()) continue;
    absl::StatusOr<Decoded> decoded = decode(*std::move(file));
    if (decoded.ok()) return decoded;
    status = Annotate(decoded.status(), path);
  }
  return status;
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_READ_CHECKED_H_
