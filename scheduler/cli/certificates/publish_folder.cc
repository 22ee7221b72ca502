#include "scheduler/cli/certificates/publish_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/file_bytes.h"
#include "common/storage/write_durably.h"
#include "common/tensor/safetensors/durable_file.h"

namespace capstan::cli {
namespace {

enum class Found { kNothing, kLink, kEmptyFolder, kFullFolder };

absl::Status SystemError(absl::string_view what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

// lstat() of "folder/" would follow a link, and the new folder is made beside the path.
absl::StatusOr<std::string> WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string name = std::filesystem::path(path).filename().string();
  if (!name.empty() && name != "." && name != "..") return path;
  return absl::InvalidArgumentError(
      absl::StrCat("folder: \"", path, "\", expected a path that ends in the name of a folder"));
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    names.push_back(file->path().filename().string());
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", folder));
  return names;
}

absl::StatusOr<Found> Look(const std::string& path) {
  struct stat file {};
  if (lstat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) return Found::kNothing;
    return SystemError("look at", path);
  }
  const bool is_link = S_ISLNK(file.st_mode);
  if (is_link && stat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) return Found::kLink;  // The folder that it named was removed.
    return SystemError("look at", path);
  }
  if (!S_ISDIR(file.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": there is a file, expected nothing, a folder or a symbolic link to a folder"));
  }
  if (is_link) return Found::kLink;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  return names.empty() ? Found::kEmptyFolder : Found::kFullFolder;
}

absl::StatusOr<Found> LookAndCheck(const std::string& path, absl::Span<const std::string> names,
                                   IfFolderExists if_exists) {
  CAPSTAN_ASSIGN_OR_RETURN(const Found found, Look(path));
  if (access(FolderOf(path).c_str(), W_OK | X_OK) != 0) {
    return SystemError("make a folder in", FolderOf(path));
  }
  if (found != Found::kFullFolder) return found;
  if (if_exists == IfFolderExists::kRefuse) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, ": the folder exists, expected nothing or a symbolic link to a folder"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> present, NamesIn(path));
  for (const std::string& name : present) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": it has \"", name, "\", expected only files that a new folder would replace"));
  }
  return found;
}

absl::Status WriteNew(const std::string& path, const FolderFile& file) {
  const Descriptor fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.ok()) return SystemError("create", path);
  if (!WriteAll(fd.get(), file.content)) return SystemError("write", path);
  if (fchmod(fd.get(), file.mode) != 0) return SystemError("set the mode of", path);
  if (fsync(fd.get()) != 0) return SystemError("sync", path);
  return absl::OkStatus();
}

// A new folder beside `path`. Unless it takes its place, it is deleted with its files.
class StagedFolder {
 public:
  static absl::StatusOr<StagedFolder> Make(const std::string& path,
                                           absl::Span<const FolderFile> files) {
    std::string name = absl::StrCat(path, ".XXXXXX");
    if (mkdtemp(name.data()) == nullptr) return SystemError("make a folder beside", path);
    StagedFolder staged(std::move(name));  // Its mode is 0700.
    for (const FolderFile& file : files) {
      CAPSTAN_RETURN_IF_ERROR(WriteNew(absl::StrCat(staged.path_, "/", file.name), file));
    }
    CAPSTAN_RETURN_IF_ERROR(SyncDirectory(staged.path_));
    return staged;
  }
  ~StagedFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  StagedFolder(StagedFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  StagedFolder& operator=(StagedFolder&&) = delete;

  const std::string& path() const { return path_; }
  void Keep() { path_.clear(); }

 private:
  explicit StagedFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;  // Empty: there is nothing to delete.
};

// Points the link at the new folder, by a name relative to the link, so that both may be moved.
absl::Status SwapLink(const std::string& link, const std::string& folder) {
  const std::string temporary = absl::StrCat(folder, ".link");
  const std::string target = std::filesystem::path(folder).filename().string();
  if (symlink(target.c_str(), temporary.c_str()) != 0) return SystemError("create", temporary);
  if (rename(temporary.c_str(), link.c_str()) == 0) return absl::OkStatus();
  const absl::Status status = SystemError("swap the symbolic link", link);
  unlink(temporary.c_str());
  return status;
}

// Exchanges the folders, so that the former one lies at `staged`, and deletes the former one. If
// another file has come into it since the check, only the files `names` are deleted.
absl::Status Exchange(StagedFolder* staged, const std::string& path,
                      absl::Span<const std::string> names) {
  if (renameat2(AT_FDCWD, staged->path().c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
    return SystemError("exchange the new folder with", path);
  }
  const std::string former = staged->path();
  staged->Keep();
  for (const std::string& name : names) unlink(absl::StrCat(former, "/", name).c_str());
  if (rmdir(former.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(path, " is replaced, but its former folder, now ",
                                                 former, ", cannot be removed"));
}

}  // namespace

absl::Status CheckMayPublish(const std::string& path, absl::Span<const std::string> names,
                             IfFolderExists if_exists) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string plain, WithoutSlashes(path));
  return LookAndCheck(plain, names, if_exists).status();
}

absl::StatusOr<std::string> PublishFolder(const std::string& path,
                                          absl::Span<const FolderFile> files,
                                          absl::Span<const std::string> names,
                                          IfFolderExists if_exists) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string plain, WithoutSlashes(path));
  CAPSTAN_ASSIGN_OR_RETURN(const Found found, LookAndCheck(plain, names, if_exists));
  CAPSTAN_ASSIGN_OR_RETURN(StagedFolder staged, StagedFolder::Make(plain, files));
  std::string former;
  if (found == Found::kLink) {
    std::error_code error;
    former = std::filesystem::canonical(plain, error).string();
    CAPSTAN_RETURN_IF_ERROR(SwapLink(plain, staged.path()));
    staged.Keep();
  } else if (found == Found::kFullFolder) {
    CAPSTAN_RETURN_IF_ERROR(Exchange(&staged, plain, names));
  } else {
    // rename() replaces nothing but an empty folder: the kernel refuses anything else that has just
    // come.
    if (rename(staged.path().c_str(), plain.c_str()) != 0) {
      return SystemError("rename the new folder to", plain);
    }
    staged.Keep();
  }
  CAPSTAN_RETURN_IF_ERROR(SyncDirectory(FolderOf(plain)));
  return former;
}

}  // namespace capstan::cli
