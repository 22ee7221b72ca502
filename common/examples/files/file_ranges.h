// File ranges: the pieces of files that workers read, made from the paths and globs of a job.
//
// Deterministic: the same files give the same ranges on every host, in the same order. A plain file
// is cut into ranges of about equal size, also within lines; line_reader.h says which range a line
// belongs to. A compressed file is one range. Thread safety: pure functions of the files.
#ifndef CAPSTAN_COMMON_EXAMPLES_FILES_FILE_RANGES_H_
#define CAPSTAN_COMMON_EXAMPLES_FILES_FILE_RANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace capstan {

// Bytes [begin, end) of a file, as they lie on the disk. A compressed file's range is all of it.
struct FileRange {
  std::string path;
  int64_t begin = 0;  // >= 0.
  int64_t end = 0;    // > begin.
  bool operator==(const FileRange&) const = default;
};

inline constexpr int64_t kFileRangesMax = 10'000'000;

// Returns the files that `patterns` stand for, each once, in the order of their bytes. A pattern is
// a path or, if no file has that very name, a glob with *, ? and [...] as in the shell.
// Errors: kInvalidArgument   no pattern, or an empty one.
//         kNotFound          a glob that matches nothing; a path that does not exist.
//         kPermissionDenied  a match that cannot be read or is no regular file (a folder); a folder
//                            of the glob that cannot be read.
//         kResourceExhausted  no memory; too many open files.
absl::StatusOr<std::vector<std::string>> ListFiles(absl::Span<const std::string> patterns);

// Appends the ranges of a file of `bytes` bytes; none if it is empty. Each has 3/4 to 3/2 of
// `range_bytes`, unless the file is smaller or compressed, and no two differ by more than one byte.
// REQUIRES: bytes >= 0, range_bytes >= 1.
// Errors: kInvalidArgument  there would be more than kFileRangesMax in all.
absl::Status AppendRanges(const std::string& path, int64_t bytes, int64_t range_bytes,
                          std::vector<FileRange>* ranges);

// All ranges of all files.
// Errors: those of both functions above;
//         kInvalidArgument  range_bytes is below 1; all files are empty.
//         kDataLoss         a compressed file of no bytes.
absl::StatusOr<std::vector<FileRange>> ListRanges(absl::Span<const std::string> patterns,
                                                  int64_t range_bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_FILES_FILE_RANGES_H_
