// WriteFileDurably: a file that is there whole or not at all, also after a power cut.
//
// Written beside `path` under a name of its own, synced, renamed over `path`, and the folder
// synced. Thread safety: thread-safe for different paths.
#ifndef CAPSTAN_COMMON_TENSOR_DURABLE_FILE_H_
#define CAPSTAN_COMMON_TENSOR_DURABLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace capstan {

// Writes `parts` one after the other. On failure `path` is as it was and nothing is left beside it.
// Errors: that of the operating system, with the path (kNotFound: no such folder,
//         kPermissionDenied, kResourceExhausted: disk full...).
absl::Status WriteFileDurably(const std::string& path, absl::Span<const absl::string_view> parts);

// Makes the folder and those above it; it may exist.
absl::Status MakeDirectories(const std::string& path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_DURABLE_FILE_H_
