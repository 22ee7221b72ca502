#include "common/security/certificates/security_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/regular_file.h"

namespace capstan {
namespace {

absl::Status OpenError(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

absl::Status CheckSecret(const struct stat& file, const std::string& path) {
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": it belongs to user ", file.st_uid,
                                                      ", expected ", geteuid(), " or root: chown ",
                                                      geteuid(), " ", path));
  }
  if ((file.st_mode & 0177) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": others may use it, expected mode 0600 or 0400: chmod 600 ", path));
}

}  // namespace

absl::StatusOr<std::string> ReadSecurityFile(int folder_fd, const std::string& name,
                                             const std::string& path, Secrecy secrecy) {
  const RegularFile file{.fd = Descriptor(openat(folder_fd, name.c_str(), kOpenUnknownFlags))};
  if (!file.fd.ok()) return OpenError(path, errno);
  struct stat facts {};
  if (fstat(file.fd.get(), &facts) != 0) return OpenError(path, errno);
  if (!S_ISREG(facts.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", KindOfFile(facts.st_mode), ", expected a regular file"));
  }
  if (secrecy == Secrecy::kSecret) {
    if (const absl::Status status = CheckSecret(facts, path); !status.ok()) return status;
  }
  if (facts.st_size > kSecurityFileBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": ", facts.st_size, " bytes, expected at most ", kSecurityFileBytesMax));
  }
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  CAPSTAN_ASSIGN_OR_RETURN(const size_t got, ReadFileAt(file, path, 0, absl::MakeSpan(text)));
  text.resize(got);
  return text;
}

}  // namespace capstan
