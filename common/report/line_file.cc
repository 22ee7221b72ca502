#include "common/report/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/storage/path_access.h"
#include "common/storage/private_files.h"

namespace capstan {
namespace {

absl::Status Failed(absl::string_view action, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(action, " ", path));
}

// Returns whether the file's last byte is something else than a newline.
absl::StatusOr<bool> EndsInMidLine(int fd, const std::string& path) {
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0) return Failed("finding the end of", path);
  if (size == 0) return false;
  char last = 0;
  if (pread(fd, &last, 1, size - 1) != 1) return Failed("reading the end of", path);
  return last != '\n';
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path) {
  const int fd = OpenPath(path, O_RDWR | O_APPEND | O_CREAT, kPrivateFileMode);
  if (fd < 0) return Failed("opening", path);
  const absl::StatusOr<bool> torn = EndsInMidLine(fd, path);
  if (!torn.ok()) {
    close(fd);
    return torn.status();
  }
  return std::unique_ptr<LineFile>(new LineFile(path, fd, *torn));
}

LineFile::LineFile(std::string path, int fd, bool torn)
    : path_(std::move(path)), fd_(fd), torn_(torn) {}

LineFile::~LineFile() { close(fd_); }

absl::Status LineFile::Append(absl::string_view lines) {
  const std::string text = absl::StrCat(torn_ ? "\n" : "", lines);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd_, text.data() + done, text.size() - done);
    if (written < 0) {
      if (errno == EINTR) continue;
      torn_ = torn_ || done > 0;
      return Failed("appending to", path_);
    }
    done += static_cast<size_t>(written);
  }
  torn_ = false;
  return absl::OkStatus();
}

}  // namespace capstan
