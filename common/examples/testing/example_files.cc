#include "common/examples/testing/example_files.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace capstan::testing {

Bytes ToBytes(absl::string_view text) { return Bytes(text.begin(), text.end()); }

std::optional<std::string> RealData(const std::string& name) {
  const char* const folder = std::getenv("CAPSTAN_TEST_DATA");
  if (folder == nullptr) {
    std::cout << "skipped: CAPSTAN_TEST_DATA names no folder with " << name << "\n";
    return std::nullopt;
  }
  const std::string path = std::string(folder) + "/" + name;
  if (!std::filesystem::exists(path)) {
    std::cout << "skipped: " << path << " is missing\n";
    return std::nullopt;
  }
  return path;
}

}  // namespace capstan::testing
