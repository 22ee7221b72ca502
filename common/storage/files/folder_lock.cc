#include "common/storage/files/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/storage/files/private_files.h"

namespace capstan {
namespace {

// Returns who wrote the lock file, for people: "process 123".
std::string Holder(int fd) {
  char bytes[32];
  const ssize_t count = pread(fd, bytes, sizeof(bytes), 0);
  if (count <= 0) return "another process";
  return absl::StrCat("process ", absl::string_view(bytes, static_cast<size_t>(count)));
}

// Returns an error made of errno, which it reads first.
absl::Status LockError(absl::string_view what, const std::string& path) {
  const int error = errno;
  return absl::UnavailableError(
      absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path)).message());
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/lock");
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kPrivateFileMode));
  if (!file.ok()) return LockError("make the lock file", path);
  int result = 0;
  do {
    result = flock(file.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat("the folder ", folder, " is in use by ",
                                                      Holder(file.get()),
                                                      ", expected it for this one alone"));
  }
  if (result != 0) {
    return LockError("lock", path);
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(file.get(), 0) != 0 || pwrite(file.get(), pid.data(), pid.size(), 0) < 0) {
    // The name is for people only; the lock holds without it.
  }
  return FolderLock(std::move(file));
}

}  // namespace capstan
