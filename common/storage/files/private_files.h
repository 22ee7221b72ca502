// Private files: the modes of the files and folders that Capstan makes. Only the user whose process
// made one can read it, whatever the umask is.
//
// A process that belongs to Capstan as a whole calls KeepNewFilesPrivate, which also covers what
// libraries make (SQLite's files). Code that users' processes run as well names the modes where it
// makes something. Existing files and folders keep their modes.
// Thread safety: thread-safe, but for KeepNewFilesPrivate.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_PRIVATE_FILES_H_
#define CAPSTAN_COMMON_STORAGE_FILES_PRIVATE_FILES_H_

#include <sys/types.h>

#include <string>
#include <system_error>

namespace capstan {

inline constexpr mode_t kPrivateFileMode = 0600;
inline constexpr mode_t kPrivateFolderMode = 0700;

// From now on no file or folder that this process or its children make is open to others.
// For mains. REQUIRES: no other thread runs yet.
void KeepNewFilesPrivate();

// As std::filesystem::create_directories, with kPrivateFolderMode for each folder that it makes.
// The result is no error if `path` is a folder.
std::error_code MakePrivateFolders(const std::string& path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_PRIVATE_FILES_H_
