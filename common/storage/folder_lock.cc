#include "common/storage/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace capstan {
namespace {

// Who wrote the lock file: "process 123", for people.
std::string Holder(int fd) {
  char bytes[32];
  const ssize_t count = pread(fd, bytes, sizeof(bytes), 0);
  if (count <= 0) return "another process";
  return absl::StrCat("process ", absl::string_view(bytes, static_cast<size_t>(count)));
}

// Of errno, which it reads first.
absl::Status LockError(absl::string_view what, const std::string& path) {
  const int error = errno;
  return absl::UnavailableError(
      absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path)).message());
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/lock");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return LockError("make the lock file", path);
  }
  FolderLock lock(fd);
  int result = 0;
  do {
    result = flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the folder ", folder, " is in use by ", Holder(fd), ", expected it for this one alone"));
  }
  if (result != 0) {
    return LockError("lock", path);
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    // The name is for people only; the lock holds without it.
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace capstan
