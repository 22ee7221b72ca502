#include "common/security/security_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/storage/descriptor.h"

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
  // O_NONBLOCK keeps a pipe from holding this process.
  const Descriptor file(openat(folder_fd, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return OpenError(path, errno);
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return OpenError(path, errno);
  if (!S_ISREG(facts.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": expected a regular file"));
  }
  if (secrecy == Secrecy::kSecret) {
    if (const absl::Status status = CheckSecret(facts, path); !status.ok()) return status;
  }
  if (facts.st_size > kSecurityFileBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": ", facts.st_size, " bytes, expected at most ", kSecurityFileBytesMax));
  }
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t count = read(file.get(), &text[got], text.size() - got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return OpenError(path, errno);
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  text.resize(got);
  return text;
}

}  // namespace capstan
