#include "common/storage/replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/storage/disk_error.h"

namespace capstan {
namespace {

// If it fails, errno says why.
TemporaryFile Make(const std::string& path) {
  std::string name = absl::StrCat(path, ".tmp-XXXXXX");
  const int fd = mkostemp(name.data(), O_CLOEXEC);  // It opens with O_EXCL and mode 0600.
  return {Descriptor(fd), std::move(name)};
}

}  // namespace

absl::StatusOr<TemporaryFile> MakeTemporaryBeside(const std::string& path) {
  TemporaryFile file = Make(path);
  const int error = errno;
  if (file.fd.ok()) return file;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot create a temporary file for ", path));
}

absl::Status ReplaceFile(const std::string& path, absl::string_view contents) {
  const TemporaryFile file = Make(path);
  if (!file.fd.ok()) return DiskError("write", path);
  const auto failed = [&] {
    const absl::Status status = DiskError("write", path);
    unlink(file.path.c_str());
    return status;
  };
  while (!contents.empty()) {
    const ssize_t written = write(file.fd.get(), contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed();
    contents.remove_prefix(static_cast<size_t>(written));
  }
  return rename(file.path.c_str(), path.c_str()) == 0 ? absl::OkStatus() : failed();
}

}  // namespace capstan
