// LastLines: the end of a text file, for an error message. Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_PROCESS_LAST_LINES_H_
#define CAPSTAN_COMMON_PROCESS_LAST_LINES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace capstan {

// At most the last `lines_max` lines and `bytes_max` bytes of a file, without the last line's
// break. Whole lines, unless the last one alone is longer than bytes_max. Bytes that are not UTF-8
// become '?'. Reads at most bytes_max + 1 bytes, however long the file is.
// Errors: kNotFound, kUnavailable  the file cannot be read; names it.
absl::StatusOr<std::string> LastLines(const std::string& path, int lines_max, int64_t bytes_max);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_LAST_LINES_H_
