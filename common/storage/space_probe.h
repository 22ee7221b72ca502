// ProbeSpace: whether a disk has room for so many bytes now, also where a quota limits it.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_STORAGE_SPACE_PROBE_H_
#define CAPSTAN_COMMON_STORAGE_SPACE_PROBE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace capstan {

// Takes `bytes` of the disk of `folder`, by a file that has no name any more, and gives them back.
// REQUIRES: bytes > 0.
// Errors: kResourceExhausted  there is no such room.   kNotFound, kUnavailable  the folder cannot
//         be written into.   All name the folder.
absl::Status ProbeSpace(const std::string& folder, int64_t bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_SPACE_PROBE_H_
