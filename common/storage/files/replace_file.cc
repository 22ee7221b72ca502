#include "common/storage/files/replace_file.h"

#include <errno.h>
#include <fcntl.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/storage/files/disk_error.h"
#include "common/storage/files/file_bytes.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/private_files.h"

namespace capstan {
namespace {

constexpr int kTriesMax = 100;

// If it fails, errno says why.
TemporaryFile Make(const std::string& path) {
  std::random_device draw;
  TemporaryFile file{Descriptor(-1), ""};
  for (int i = 0; i < kTriesMax; ++i) {
    file.path = absl::StrCat(path, ".tmp-", absl::Hex(draw(), absl::kZeroPad8));
    file.fd = Descriptor(OpenPath(file.path, O_RDWR | O_CREAT | O_EXCL, kPrivateFileMode));
    if (file.fd.ok() || errno != EEXIST) break;
  }
  return file;
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
    RemovePath(file.path);
    return status;
  };
  if (!WriteAll(file.fd.get(), contents)) return failed();
  return RenamePath(file.path, path) == 0 ? absl::OkStatus() : failed();
}

}  // namespace capstan
