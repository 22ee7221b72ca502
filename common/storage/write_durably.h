// WriteDurably: a file that is there whole or not at all, also after a power cut.
//
// Written beside `path` as <path>.tmp, synced, renamed over `path`, and the folder synced.
// Thread safety: thread-safe for different paths.
#ifndef CAPSTAN_COMMON_STORAGE_WRITE_DURABLY_H_
#define CAPSTAN_COMMON_STORAGE_WRITE_DURABLY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/storage/disk.h"

namespace capstan {

inline constexpr absl::string_view kTemporarySuffix = ".tmp";

// Writes `parts` one after the other. On failure `path` is as it was, except after a failed sync of
// the folder: then it is as it was or whole. Errors: the disk's.
absl::Status WriteDurably(Disk& disk, const std::string& path,
                          absl::Span<const absl::string_view> parts);

// The folder that `path` lies in: "." if it names none.
std::string FolderOf(const std::string& path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_WRITE_DURABLY_H_
