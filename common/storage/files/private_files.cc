#include "common/storage/files/private_files.h"

#include <errno.h>
#include <sys/stat.h>

#include <filesystem>

namespace capstan {

void KeepNewFilesPrivate() { umask(S_IRWXG | S_IRWXO); }

std::error_code MakePrivateFolders(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return {};
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (!parent.empty() && parent != path) {
    if (const std::error_code above = MakePrivateFolders(parent)) return above;
  }
  if (mkdir(path.c_str(), kPrivateFolderMode) == 0) return {};
  const int failure = errno;
  // Another process may have made it meanwhile.
  if (failure == EEXIST && std::filesystem::is_directory(path, error)) return {};
  return {failure == EEXIST ? ENOTDIR : failure, std::generic_category()};
}

}  // namespace capstan
