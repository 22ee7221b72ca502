#include "common/storage/posix_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/disk_error.h"
#include "common/storage/files/file_bytes.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/private_files.h"
#include "common/storage/files/regular_file.h"
#include "common/storage/write_durably.h"

namespace capstan {
namespace {

constexpr size_t kStartBytes = 1 << 20;
constexpr int kCreateTriesMax = 10;  // While others make files of the same name.

int OpenAgain(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = OpenPath(path, flags, kPrivateFileMode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Opens a new file for writing, in place of a file or symbolic link of that name: another process
// may hold that file open, or the link may lead out of the folder. Below 0: errno says why.
int OpenNew(const std::string& path) {
  for (int tries = 0;; ++tries) {
    const int fd = OpenAgain(path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0 || errno != EEXIST || tries == kCreateTriesMax) return fd;
    struct stat status;
    if (StatLink(path, &status) != 0) continue;
    if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
      return OpenAgain(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    }
    if (RemovePath(path) != 0 && errno != ENOENT) return -1;
  }
}

class PosixFile final : public WritableFile {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  absl::Status Append(absl::string_view bytes) override {
    while (!bytes.empty()) {
      const absl::string_view piece = bytes.substr(0, kStartBytes);
      if (!WriteAll(fd_.get(), piece)) return DiskError("write", path_);
      bytes.remove_prefix(piece.size());
      StartWriting(static_cast<int64_t>(piece.size()));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (!sync_failure_.ok()) return sync_failure_;
    int result = 0;
    do {
      // The file's size, which is needed to read the bytes back, is synced with them.
      result = fdatasync(fd_.get());
    } while (result != 0 && errno == EINTR);
    if (result != 0) sync_failure_ = DiskError("sync", path_);
    return sync_failure_;
  }

 private:
  // Starts to write large data to the disk while more of it comes, so that Sync waits for less. It
  // is a hint: Sync finds the errors.
  void StartWriting(int64_t written) {
    unstarted_ += written;
    if (unstarted_ < static_cast<int64_t>(kStartBytes)) return;
    const off_t end = lseek(fd_.get(), 0, SEEK_CUR);
    if (end >= unstarted_) {
      sync_file_range(fd_.get(), end - unstarted_, unstarted_, SYNC_FILE_RANGE_WRITE);
    }
    unstarted_ = 0;
  }

  const Descriptor fd_;
  const std::string path_;
  absl::Status sync_failure_;
  int64_t unstarted_ = 0;
};

absl::StatusOr<RegularFile> OpenToRead(const std::string& path) {
  RegularFile file{.fd = Descriptor(OpenAgain(path, kOpenUnknownFlags))};
  if (!file.fd.ok()) return DiskError("open", path);
  struct stat status;
  if (fstat(file.fd.get(), &status) != 0) return DiskError("read", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::UnavailableError(absl::StrCat(
        "cannot read ", path, ": it is ", KindOfFile(status.st_mode), ", expected a regular file"));
  }
  file.bytes = status.st_size;
  return file;
}

absl::StatusOr<std::string> ReadFrom(int fd, const std::string& path, int64_t begin,
                                     int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  const int64_t got = ReadAt(fd, begin, absl::MakeSpan(bytes));
  if (got < 0) return DiskError("read", path);
  if (got == count) return bytes;
  return absl::DataLossError(
      absl::StrCat(path, " ends at byte ", begin + got, ", expected ", begin + count, " bytes"));
}

bool IsFolder(const std::string& path) {
  struct stat status;
  return StatPath(path, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> PosixDisk::Create(const std::string& path) {
  const int fd = OpenNew(path);
  if (fd < 0) return DiskError("create", path);
  return std::make_unique<PosixFile>(fd, path);
}

absl::StatusOr<std::string> PosixDisk::Read(const std::string& path, int64_t bytes_max) {
  CAPSTAN_ASSIGN_OR_RETURN(const RegularFile file, OpenToRead(path));
  if (file.bytes > bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot read ", path, ": it has ", file.bytes,
                                                     " bytes, expected at most ", bytes_max));
  }
  return ReadFrom(file.fd.get(), path, 0, file.bytes);
}

absl::StatusOr<std::string> PosixDisk::ReadPart(const std::string& path, int64_t begin,
                                                int64_t bytes) {
  CAPSTAN_ASSIGN_OR_RETURN(const RegularFile file, OpenToRead(path));
  return ReadFrom(file.fd.get(), path, begin, bytes);
}

absl::Status PosixDisk::Rename(const std::string& from, const std::string& to) {
  if (RenamePath(from, to) == 0) return absl::OkStatus();
  return DiskError(absl::StrCat("rename ", from, " to"), to);
}

absl::Status PosixDisk::Remove(const std::string& path) {
  if (RemovePath(path) == 0) return absl::OkStatus();
  return DiskError("remove", path);
}

absl::Status PosixDisk::MakeFolder(const std::string& path) {
  if (path.empty() || path == "/") return absl::OkStatus();
  const std::string parent = FolderOf(path);
  if (!IsFolder(path)) {
    if (parent != ".") CAPSTAN_RETURN_IF_ERROR(MakeFolder(parent));
    if (MakeOneFolder(path, kPrivateFolderMode) != 0 && errno != EEXIST) {
      return DiskError("make the folder", path);
    }
    if (!IsFolder(path)) {
      errno = ENOTDIR;
      return DiskError("make the folder", path);
    }
    return SyncFolder(parent);
  }
  // A killed process may have made the folder and not synced its name. If the parent cannot be
  // synced because it is another user's, this process did not make the folder.
  SyncFolder(parent).IgnoreError();
  return absl::OkStatus();
}

absl::Status PosixDisk::SyncFolder(const std::string& path) {
  const Descriptor fd(OpenAgain(path, O_RDONLY | O_DIRECTORY));
  if (!fd.ok()) return DiskError("open the folder", path);
  int result = 0;
  do {
    result = fsync(fd.get());
  } while (result != 0 && errno == EINTR);
  // Some file systems cannot sync folders; their names are as durable as they get.
  if (result != 0 && errno != EINVAL) return DiskError("sync the folder", path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PosixDisk::List(const std::string& path) {
  DIR* folder = OpenFolder(path);
  if (folder == nullptr && errno == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat("cannot list ", path, ": it is no folder"));
  }
  if (folder == nullptr) return DiskError("list", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  closedir(folder);
  errno = error;
  if (error != 0) return DiskError("list", path);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace capstan
