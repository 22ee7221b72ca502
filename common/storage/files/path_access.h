// Path access: the calls of the operating system that take a path, for paths that jobs and other
// processes name.
//
// A daemon, and the process of a task, calls ConfinePaths once. From then on these calls reach
// nothing but what lies below AllowedPaths, however links are placed, also if one is swapped in
// meanwhile: Linux itself resolves the path below the root's descriptor (openat2, since 5.6), and
// follows neither a link nor ".." out of it. Files are then opened without waiting, and for writing
// only if they are regular files. As with a working folder or a limit of resources, this holds for
// the whole process, so that no caller can forget it. Other programs are not confined.
//
// The calls return what the system calls of these names return, and set errno: EACCES for a path
// below no allowed folder, ELOOP for a path with a link that leads out of it.
// Thread safety: thread-safe; ConfinePaths is called before other threads open paths of jobs.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_PATH_ACCESS_H_
#define CAPSTAN_COMMON_STORAGE_FILES_PATH_ACCESS_H_

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "common/storage/files/allowed_paths.h"

namespace capstan {

// Errors: kFailedPrecondition  this system has no openat2.
absl::Status ConfinePaths(AllowedPaths allowed);
// Null: this process is not confined. Else valid until the process ends.
const AllowedPaths* Confinement();
// Errors: kPermissionDenied  this process may not open `path`, because of its name; says why.
absl::Status CheckConfined(const std::string& path);

// As open, mkdir, rename, remove, stat, lstat and opendir. O_CLOEXEC is added.
int OpenPath(const std::string& path, int flags, mode_t mode = 0);
int MakeOneFolder(const std::string& path, mode_t mode);
int RenamePath(const std::string& from, const std::string& to);
int RemovePath(const std::string& path);
int StatPath(const std::string& path, struct stat* status);
int StatLink(const std::string& path, struct stat* status);
DIR* OpenFolder(const std::string& path);

// Makes the folder and those above it, with kPrivateFolderMode; they may exist.
int MakeFolders(const std::string& path);
// Removes a folder with all that is in it, and follows no link. A missing folder is no error.
int RemoveTree(const std::string& path);

// Paths below "/proc/self/fd/<fd>", an open folder, are allowed from HoldFolder to ReleaseFolder.
void HoldFolder(int fd);
void ReleaseFolder(int fd);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_PATH_ACCESS_H_
