// Replay: the main of a target in a build without libFuzzer: calls it once with each kept input.
//
//   TARGET [-FLAG...] FILE|FOLDER...
//
// Flags are libFuzzer's, and are passed over. A target that finds something aborts, and the last
// name written is that of the input.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

void AddFiles(const fs::path& path, std::vector<fs::path>* files) {
  if (!fs::is_directory(path)) return files->push_back(path);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files->push_back(entry.path());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  for (const std::string& argument : std::vector<std::string>(argv + 1, argv + argc)) {
    if (!argument.empty() && argument[0] != '-') AddFiles(argument, &files);
  }
  if (files.empty()) {
    std::fputs("no inputs: expected files, or folders with some\n", stderr);
    return 2;
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                                  std::istreambuf_iterator<char>());
    std::fprintf(stderr, "%s: %zu bytes\n", path.c_str(), bytes.size());
    capstan::fuzz::LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()),
                                          bytes.size());
  }
  std::fprintf(stderr, "%zu inputs\n", files.size());
  return 0;
}
