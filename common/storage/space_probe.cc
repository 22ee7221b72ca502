#include "common/storage/space_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/disk_error.h"
#include "common/storage/files/private_files.h"

namespace capstan {

absl::Status ProbeSpace(const std::string& folder, int64_t bytes) {
  const std::string path = absl::StrCat(folder, "/.capstan-space-probe");
  const Descriptor file(
      open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, kPrivateFileMode));
  if (!file.ok()) return DiskError("write into", folder);
  unlink(path.c_str());  // The bytes are freed with the descriptor, even if this process dies.
  errno = posix_fallocate(file.get(), 0, bytes);
  if (errno == 0) return absl::OkStatus();
  return DiskError(absl::StrCat("take ", bytes, " bytes in"), folder);
}

}  // namespace capstan
