// ProbeSpace: whether a disk has room for so many bytes now, also where a quota limits it.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_STORAGE_SPACE_PROBE_H_
#define CAPSTAN_COMMON_STORAGE_SPACE_PROBE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace capstan {

// Allocates `bytes` on the disk of `folder`, in a file without a name, and frees them again.
// REQUIRES: bytes > 0.
// Errors: kResourceExhausted  there is no such room.   kNotFound, kUnavailable  the folder cannot
//         be written into.   All name the folder.
absl::Status ProbeSpace(const std::string& folder, int64_t bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_SPACE_PROBE_H_
