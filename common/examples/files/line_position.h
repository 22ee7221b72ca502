// LinePosition: the place of a line in its file. Its number is computed only when it is needed.
//
// A reader of a range in the middle of a file does not know how many lines come before it. It keeps
// the byte where its first line begins, and counts from there; the newlines before are counted when
// there is something to report. Thread safety: pure functions of the file.
#ifndef CAPSTAN_COMMON_EXAMPLES_FILES_LINE_POSITION_H_
#define CAPSTAN_COMMON_EXAMPLES_FILES_LINE_POSITION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace capstan {

struct LinePosition {
  int64_t base = 0;      // A byte of the file (0 if it is compressed), as it lies on the disk.
  int64_t newlines = 0;  // Newlines from there to the line.
};

// Counts the newlines among the first `end` bytes of a file. Reads them all.
// REQUIRES: 0 <= end; 0 if the file is compressed.
// Errors: those of InputFile; kDataLoss  the file is shorter.
absl::StatusOr<int64_t> CountNewlines(const std::string& path, int64_t end);

// "path:123", lines counted from 1; "path: line 5 after byte 1000" where they cannot be counted.
std::string Locate(const std::string& path, const LinePosition& position);
// Same, with the result of CountNewlines(path, position.base).
std::string Locate(const std::string& path, const LinePosition& position,
                   const absl::StatusOr<int64_t>& newlines_before);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_FILES_LINE_POSITION_H_
