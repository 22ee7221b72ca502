#include "common/storage/files/path_access.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/private_files.h"

namespace capstan {
namespace {

constexpr absl::string_view kHeldPrefix = "/proc/self/fd/";
constexpr int kFolderFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
constexpr int kAgainMax = 100;  // A resolution that a rename disturbed is repeated so often.
constexpr int kDepthMax = 64;   // RemoveTree removes no deeper folders.

std::atomic<const AllowedPaths*> confinement{nullptr};

struct State {
  absl::Mutex mutex;
  std::vector<int> held ABSL_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<const AllowedPaths>> confinements ABSL_GUARDED_BY(mutex);
};

// Never freed: other threads may use it until the process ends.
State& StateOfProcess() {
  static State& state = *new State;
  return state;
}

// A place that a path names: an open folder and what lies below it.
struct Found {
  Descriptor root;
  std::vector<std::string> steps;
};

int Fail(int error) {
  errno = error;
  return -1;
}

std::string Join(absl::Span<const std::string> steps) {
  return steps.empty() ? "." : absl::StrJoin(steps, "/");
}

// Opens what lies below `root`, and resolves no link out of it. Returns -1 and sets errno.
int OpenBeneath(int root, const std::string& path, int flags, mode_t mode) {
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
  if ((flags & O_PATH) == 0) how.flags |= O_NONBLOCK | O_NOCTTY;
  if ((flags & O_CREAT) != 0) how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 0; attempt < kAgainMax; ++attempt) {
    const long fd = syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how));
    if (fd >= 0) return static_cast<int>(fd);
    if (errno != EINTR && errno != EAGAIN) break;
  }
  return Fail(errno == EXDEV ? ELOOP : errno);
}

std::optional<Found> FindHeld(absl::string_view path) {
  absl::string_view rest = path;
  if (!absl::ConsumePrefix(&rest, kHeldPrefix)) return std::nullopt;
  std::vector<std::string> steps = absl::StrSplit(rest, '/', absl::SkipEmpty());
  int fd = -1;
  if (steps.empty() || !absl::SimpleAtoi(steps[0], &fd)) return std::nullopt;
  if (std::find(steps.begin(), steps.end(), "..") != steps.end()) return std::nullopt;
  State& state = StateOfProcess();
  absl::MutexLock lock(&state.mutex);
  if (std::find(state.held.begin(), state.held.end(), fd) == state.held.end()) return std::nullopt;
  steps.erase(steps.begin());
  return Found{Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0)), std::move(steps)};
}

// Nothing if `path` may not be opened or its root cannot be; sets errno then.
std::optional<Found> Find(const std::string& path) {
  std::optional<Found> found = FindHeld(path);
  if (!found) {
    std::optional<AllowedPaths::Place> place = Confinement()->Find(path);
    if (!place) {
      errno = EACCES;
      return std::nullopt;
    }
    found = Found{Descriptor(open(place->root.c_str(), kFolderFlags)), std::move(place->steps)};
  }
  if (!found->root.ok()) return std::nullopt;
  return found;
}

// The folder that `path` lies in, and its name there. A root has none.
struct Entry {
  Descriptor folder;
  std::string name;
};

std::optional<Entry> FindEntry(const std::string& path) {
  std::optional<Found> found = Find(path);
  if (!found) return std::nullopt;
  if (found->steps.empty()) {
    errno = EACCES;
    return std::nullopt;
  }
  std::string name = std::move(found->steps.back());
  found->steps.pop_back();
  Descriptor folder(OpenBeneath(found->root.get(), Join(found->steps), kFolderFlags, 0));
  if (!folder.ok()) return std::nullopt;
  return Entry{std::move(folder), std::move(name)};
}

int RemoveEntry(int folder, const char* name, int depth) {
  if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  if (depth == 0) return Fail(ENOTEMPTY);
  const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* entries = fd < 0 ? nullptr : fdopendir(fd);
  if (entries == nullptr) return -1;
  int result = 0;
  while (const dirent* entry = readdir(entries)) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    result = RemoveEntry(dirfd(entries), entry->d_name, depth - 1);
    if (result != 0) break;
  }
  const int error = errno;
  closedir(entries);
  return result == 0 ? unlinkat(folder, name, AT_REMOVEDIR) : Fail(error);
}

int StatBy(const std::string& path, int flags, struct stat* status) {
  const Descriptor fd(OpenPath(path, O_PATH | flags));
  return fd.ok() ? fstat(fd.get(), status) : -1;
}

int FailWith(const std::error_code& error) { return error ? Fail(error.value()) : 0; }

}  // namespace

absl::Status ConfinePaths(AllowedPaths allowed) {
  const Descriptor root(open("/", kFolderFlags));
  const Descriptor probe(OpenBeneath(root.get(), ".", kFolderFlags, 0));
  if (!probe.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "openat2 fails: ", std::strerror(errno),
        "; expected Linux 5.6 or newer, and no sandbox that forbids the call: files that jobs "
        "name are opened by it"));
  }
  State& state = StateOfProcess();
  absl::MutexLock lock(&state.mutex);
  state.confinements.push_back(std::make_unique<const AllowedPaths>(std::move(allowed)));
  confinement = state.confinements.back().get();
  return absl::OkStatus();
}

const AllowedPaths* Confinement() { return confinement.load(); }

absl::Status CheckConfined(const std::string& path) {
  if (Confinement() == nullptr || FindHeld(path)) return absl::OkStatus();
  if (Confinement()->Find(path)) return absl::OkStatus();
  return Confinement()->Check("", path);
}

int OpenPath(const std::string& path, int flags, mode_t mode) {
  if (Confinement() == nullptr) return open(path.c_str(), flags | O_CLOEXEC, mode);
  const std::optional<Found> found = Find(path);
  if (!found) return -1;
  Descriptor fd(OpenBeneath(found->root.get(), Join(found->steps), flags, mode));
  struct stat status = {};
  if (!fd.ok() || (flags & O_ACCMODE) == O_RDONLY) return fd.Release();
  // Bytes written into a pipe or a device would reach another program.
  if (fstat(fd.get(), &status) != 0) return -1;
  return S_ISREG(status.st_mode) ? fd.Release() : Fail(EACCES);
}

int MakeOneFolder(const std::string& path, mode_t mode) {
  if (Confinement() == nullptr) return mkdir(path.c_str(), mode);
  const std::optional<Entry> entry = FindEntry(path);
  return entry ? mkdirat(entry->folder.get(), entry->name.c_str(), mode) : -1;
}

int RenamePath(const std::string& from, const std::string& to) {
  if (Confinement() == nullptr) return rename(from.c_str(), to.c_str());
  const std::optional<Entry> old_entry = FindEntry(from);
  if (!old_entry) return -1;
  const std::optional<Entry> new_entry = FindEntry(to);
  if (!new_entry) return -1;
  return renameat(old_entry->folder.get(), old_entry->name.c_str(), new_entry->folder.get(),
                  new_entry->name.c_str());
}

int RemovePath(const std::string& path) {
  if (Confinement() == nullptr) return remove(path.c_str());
  const std::optional<Entry> entry = FindEntry(path);
  if (!entry) return -1;
  if (unlinkat(entry->folder.get(), entry->name.c_str(), 0) == 0) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  return unlinkat(entry->folder.get(), entry->name.c_str(), AT_REMOVEDIR);
}

int StatPath(const std::string& path, struct stat* status) {
  if (Confinement() == nullptr) return stat(path.c_str(), status);
  return StatBy(path, 0, status);
}

int StatLink(const std::string& path, struct stat* status) {
  if (Confinement() == nullptr) return lstat(path.c_str(), status);
  return StatBy(path, O_NOFOLLOW, status);
}

DIR* OpenFolder(const std::string& path) {
  Descriptor fd(OpenPath(path, O_RDONLY | O_DIRECTORY));
  DIR* folder = fd.ok() ? fdopendir(fd.get()) : nullptr;
  if (folder != nullptr) fd.Release();
  return folder;
}

int MakeFolders(const std::string& path) {
  if (Confinement() == nullptr) return FailWith(MakePrivateFolders(path));
  const std::optional<Found> found = Find(path);
  if (!found) return -1;
  const int root = found->root.get();
  const absl::Span<const std::string> steps(found->steps);
  for (size_t made = 0; made <= steps.size();) {
    const Descriptor folder(OpenBeneath(root, Join(steps.first(made)), kFolderFlags, 0));
    if (!folder.ok()) return -1;
    // Makes one more step. If there is something already, the next turn looks at it.
    if (made < steps.size() &&
        mkdirat(folder.get(), steps[made].c_str(), kPrivateFolderMode) != 0 && errno != EEXIST) {
      return -1;
    }
    ++made;
  }
  return 0;
}

int RemoveTree(const std::string& path) {
  if (Confinement() == nullptr) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return FailWith(error);
  }
  const std::optional<Entry> entry = FindEntry(path);
  return entry ? RemoveEntry(entry->folder.get(), entry->name.c_str(), kDepthMax) : -1;
}

void HoldFolder(int fd) {
  State& state = StateOfProcess();
  absl::MutexLock lock(&state.mutex);
  state.held.push_back(fd);
}

void ReleaseFolder(int fd) {
  State& state = StateOfProcess();
  absl::MutexLock lock(&state.mutex);
  std::erase(state.held, fd);
}

}  // namespace capstan
