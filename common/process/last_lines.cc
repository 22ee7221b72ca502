#include "common/process/last_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/observability/utf8.h"

namespace capstan {
namespace {

absl::Status Failed(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": ", strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

// Returns the last `bytes_max` bytes of the file, or all of them.
absl::StatusOr<std::string> ReadTail(const std::string& path, int64_t bytes_max) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed(path, errno);
  struct stat info {};
  fstat(fd, &info);
  int64_t offset = std::max<int64_t>(0, info.st_size - bytes_max);
  std::string tail(static_cast<size_t>(std::min<int64_t>(info.st_size, bytes_max)), '\0');
  size_t done = 0;
  while (done < tail.size()) {
    const ssize_t n = pread(fd, tail.data() + done, tail.size() - done, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      close(fd);
      return Failed(path, error);
    }
    if (n == 0) break;  // The file was cut short meanwhile.
    done += static_cast<size_t>(n);
    offset += n;
  }
  close(fd);
  tail.resize(done);
  return tail;
}

}  // namespace

absl::StatusOr<std::string> LastLines(const std::string& path, int lines_max, int64_t bytes_max) {
  if (lines_max <= 0 || bytes_max <= 0) return std::string();
  absl::StatusOr<std::string> tail = ReadTail(path, bytes_max + 1);
  if (!tail.ok()) return tail.status();
  std::string text = *std::move(tail);
  const bool cut = static_cast<int64_t>(text.size()) > bytes_max;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  // The beginning of the first line that is returned; one past the end means none yet.
  size_t begin = text.size() + 1;
  for (int lines = 0; lines < lines_max && begin > 0; ++lines) {
    const size_t line_break = begin >= 2 ? text.rfind('\n', begin - 2) : std::string::npos;
    const bool whole = line_break != std::string::npos || !cut;
    if (!whole && begin <= text.size()) break;  // Its start is not known, and there are others.
    begin = line_break == std::string::npos ? 0 : line_break + 1;
  }
  text.erase(0, std::min(begin, text.size()));
  if (static_cast<int64_t>(text.size()) > bytes_max) text.erase(0, text.size() - bytes_max);
  return ToValidUtf8(text);
}

}  // namespace capstan
