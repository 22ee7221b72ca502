#include "tests/benchmark/scratch_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace capstan::benchmark {

std::string ScratchFolder::Home() {
  const char* const scratch = std::getenv("TMPDIR");
  return scratch != nullptr ? scratch : "/var/tmp";
}

absl::StatusOr<std::unique_ptr<ScratchFolder>> ScratchFolder::Make(const std::string& home,
                                                                   const std::string& name) {
  std::string path = absl::StrCat(home, "/", name, "-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<ScratchFolder>(new ScratchFolder(path));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace capstan::benchmark
