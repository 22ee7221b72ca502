// WriteAll, WriteAllAt, ReadAt: bytes to and from an open file, however many calls it takes.
//
// A signal interrupts write(2) and read(2), which then move a part, or nothing. These go on until
// all has moved. If they fail, errno says why.
// Thread safety: thread-safe, but for the position of a file, which WriteAll moves.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_FILE_BYTES_H_
#define CAPSTAN_COMMON_STORAGE_FILES_FILE_BYTES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace capstan {

// Writes at the file's position; `fd` may also be a pipe. False: it failed, after a part perhaps.
bool WriteAll(int fd, absl::string_view bytes);

// Same, from `offset` on.
bool WriteAllAt(int fd, int64_t offset, absl::string_view bytes);

// Fills `room` from `offset` on and returns how many bytes it read: fewer than asked for at the end
// of the file, -1 if it failed.
int64_t ReadAt(int fd, int64_t offset, absl::Span<char> room);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_FILE_BYTES_H_
