// OpenRegularFile: opens a file that a job or a user has named, for reading.
//
// Such a name may lead to a pipe, whose reader waits for ever, or to a device, whose bytes never
// end or where reading has effects. Only a regular file is opened here, without waiting.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_REGULAR_FILE_H_
#define CAPSTAN_COMMON_STORAGE_FILES_REGULAR_FILE_H_

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

struct RegularFile {
  Descriptor fd;
  int64_t bytes = 0;  // Its size when it was opened.
};

// Errors: kNotFound           no such file.
//         kPermissionDenied   no right to read it, or not a regular file: says what it is.
//         kResourceExhausted  too many open files, no memory.
//         kDataLoss           the disk failed.
// Every message begins with the path.
absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path);

// Fills `room` from `offset` on; fewer bytes than asked for mean the end of the file. `path` is for
// messages. Errors: as of OpenRegularFile, for a disk that fails.
absl::StatusOr<size_t> ReadFileAt(const RegularFile& file, absl::string_view path, int64_t offset,
                                  absl::Span<char> room);

// The kind of `mode` (of stat): "a folder", "a pipe", "a device", "a socket", "a regular file".
absl::string_view KindOfFile(mode_t mode);

// The flags for opening what may turn out to be no regular file: without O_NONBLOCK the call waits
// for the writer of a pipe, without O_NOCTTY a terminal may become that of the process.
inline constexpr int kOpenUnknownFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_REGULAR_FILE_H_
