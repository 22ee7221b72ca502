#include "common/examples/streams/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kPermissionDenied;
  }
}

absl::Status ErrorOf(const std::string& path, int error_number) {
  return absl::Status(CodeOf(error_number),
                      absl::StrCat(path, ": cannot be read: ", std::strerror(error_number)));
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // With O_NONBLOCK, opening a pipe that has no writer does not wait for one.
  InputFile file(path, open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.file_.ok()) return ErrorOf(path, errno);
  struct stat status;
  if (fstat(file.file_.get(), &status) != 0) return ErrorOf(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be read: ", S_ISDIR(status.st_mode) ? "a folder" : "no file",
                     ", expected a regular file"));
  }
  file.bytes_ = status.st_size;
  return file;
}

absl::StatusOr<size_t> InputFile::ReadAt(int64_t offset, absl::Span<char> room) const {
  size_t filled = 0;
  while (filled < room.size()) {
    const ssize_t got = pread(file_.get(), room.data() + filled, room.size() - filled,
                              offset + static_cast<int64_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrorOf(path_, errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  return filled;
}

}  // namespace capstan
