#include "common/storage/files/file_bytes.h"

#include <errno.h>
#include <unistd.h>

namespace capstan {

bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool WriteAllAt(int fd, int64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return true;
}

int64_t ReadAt(int fd, int64_t offset, absl::Span<char> room) {
  int64_t filled = 0;
  while (!room.empty()) {
    const ssize_t got = pread(fd, room.data(), room.size(), offset + filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    room.remove_prefix(static_cast<size_t>(got));
    filled += got;
  }
  return filled;
}

}  // namespace capstan
