#include "common/report/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/private_files.h"

namespace capstan {
namespace {

absl::Status Failed(absl::string_view action, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(action, " ", path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path) {
  Descriptor file(OpenPath(path, O_RDWR | O_APPEND | O_CREAT, kPrivateFileMode));
  if (!file.ok()) return Failed("opening", path);
  return Take(std::move(file), path);
}

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Take(Descriptor file, const std::string& path) {
  const off_t bytes = lseek(file.get(), 0, SEEK_END);
  if (bytes < 0) return Failed("finding the end of", path);
  char last = '\n';
  if (bytes > 0 && pread(file.get(), &last, 1, bytes - 1) != 1) {
    return Failed("reading the end of", path);
  }
  return std::unique_ptr<LineFile>(
      new LineFile(path, std::move(file), bytes, /*torn=*/last != '\n'));
}

LineFile::LineFile(std::string path, Descriptor file, int64_t bytes, bool torn)
    : path_(std::move(path)), file_(std::move(file)), bytes_(bytes), torn_(torn) {}

absl::Status LineFile::Append(absl::string_view lines) {
  const std::string text = absl::StrCat(torn_ ? "\n" : "", lines);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(file_.get(), text.data() + done, text.size() - done);
    if (written < 0) {
      if (errno == EINTR) continue;
      torn_ = torn_ || done > 0;
      return Failed("appending to", path_);
    }
    done += static_cast<size_t>(written);
    bytes_ += written;
  }
  torn_ = false;
  return absl::OkStatus();
}

}  // namespace capstan
