#include "common/storage/files/regular_file.h"

#include <errno.h>
#include <sys/stat.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/storage/files/file_bytes.h"
#include "common/storage/files/path_access.h"

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

absl::Status ReadError(absl::string_view path, int error_number) {
  if (error_number == ELOOP && Confinement() != nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, ": cannot be read: a link leads out of the folder that --allow-path allows"));
  }
  return absl::Status(CodeOf(error_number),
                      absl::StrCat(path, ": cannot be read: ", std::strerror(error_number)));
}

absl::Status NotRegular(absl::string_view path, absl::string_view kind) {
  return absl::PermissionDeniedError(
      absl::StrCat(path, ": cannot be read: ", kind, ", expected a regular file"));
}

}  // namespace

absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path) {
  if (const absl::Status allowed = CheckConfined(path); !allowed.ok()) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be read: ", allowed.message()));
  }
  RegularFile file{.fd = Descriptor(OpenPath(path, kOpenUnknownFlags))};
  struct stat status = {};
  if (!file.fd.ok()) {
    const int error = errno;
    // A socket cannot be opened, nor a device that has no driver.
    if (error == ENXIO && StatPath(path, &status) == 0) {
      return NotRegular(path, KindOfFile(status.st_mode));
    }
    return ReadError(path, error);
  }
  if (fstat(file.fd.get(), &status) != 0) return ReadError(path, errno);
  if (!S_ISREG(status.st_mode)) return NotRegular(path, KindOfFile(status.st_mode));
  file.bytes = status.st_size;
  return file;
}

absl::StatusOr<size_t> ReadFileAt(const RegularFile& file, absl::string_view path, int64_t offset,
                                  absl::Span<char> room) {
  const int64_t got = ReadAt(file.fd.get(), offset, room);
  if (got < 0) return ReadError(path, errno);
  return static_cast<size_t>(got);
}

absl::string_view KindOfFile(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace capstan
