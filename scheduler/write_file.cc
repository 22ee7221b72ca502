#include "scheduler/write_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/storage/private_files.h"

namespace capstan::scheduler {

absl::Status WriteFileAtomically(const std::string& path, const std::string& contents) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << contents;
    file.close();
    if (!file) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", temporary, ": ", std::strerror(errno)));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& path) {
  const std::error_code error = MakePrivateFolders(path);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot make the folder ", path, ": ", error.message()));
}

}  // namespace capstan::scheduler
