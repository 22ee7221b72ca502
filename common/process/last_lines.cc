#include "common/process/last_lines.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/observability/utf8.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/disk_error.h"
#include "common/storage/files/file_bytes.h"

namespace capstan {
namespace {

// Returns the last `bytes_max` bytes of the file, or all of them.
absl::StatusOr<std::string> ReadTail(const std::string& path, int64_t bytes_max) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return DiskError("read", path);
  struct stat info {};
  fstat(file.get(), &info);
  std::string tail(static_cast<size_t>(std::min<int64_t>(info.st_size, bytes_max)), '\0');
  const int64_t begin = info.st_size - static_cast<int64_t>(tail.size());
  const int64_t got = ReadAt(file.get(), begin, absl::MakeSpan(tail));
  if (got < 0) return DiskError("read", path);
  tail.resize(static_cast<size_t>(got));  // Fewer, if the file was cut short meanwhile.
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
