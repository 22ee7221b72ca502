#include "common/storage/files/disk_error.h"

#include <errno.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace capstan {

absl::Status DiskError(absl::string_view what, absl::string_view path) {
  const int error = errno;
  const std::string message(
      absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path)).message());
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    case ELOOP:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace capstan
