#include "common/net/node/node_identity.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/random_hex.h"
#include "common/status/status_macros.h"
#include "common/storage/posix_disk.h"
#include "common/storage/write_durably.h"

namespace capstan {
namespace {

constexpr int64_t kIdBytesMax = 64;

// Returns the id kept at `path`; makes and keeps one if there is none.
absl::StatusOr<std::string> KeptAt(const std::string& path) {
  PosixDisk disk;
  absl::StatusOr<std::string> kept = disk.Read(path, kIdBytesMax);
  if (kept.ok() && !kept->empty()) return kept;
  if (!kept.ok() && !absl::IsNotFound(kept.status())) return kept.status();
  const std::string made = RandomHex();
  CAPSTAN_RETURN_IF_ERROR(WriteDurably(disk, path, {made}));
  return made;
}

}  // namespace

NodeIdentity::NodeIdentity() : id_(RandomHex()) {}

NodeIdentity::NodeIdentity(std::string id, FolderLock lock)
    : id_(std::move(id)), lock_(std::move(lock)) {}

absl::StatusOr<NodeIdentity> NodeIdentity::Keep(const std::string& folder,
                                                const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: \"", name, "\" is not that of a file, so no identity is kept"));
  }
  const std::string own = absl::StrCat(folder, "/.identity/", name);
  CAPSTAN_RETURN_IF_ERROR(PosixDisk().MakeFolder(own));
  CAPSTAN_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::Take(own));
  const std::string path = own + "/id";
  CAPSTAN_ASSIGN_OR_RETURN(const std::string kept, KeptAt(path));
  // A copied folder belongs to another daemon: its files have other inode numbers.
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return absl::ErrnoToStatus(errno, path);
  return NodeIdentity(absl::StrCat(kept, "-", file.st_ino), std::move(lock));
}

}  // namespace capstan
