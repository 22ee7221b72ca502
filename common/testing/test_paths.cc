#include "common/testing/test_paths.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace capstan::testing {

std::string TestPath(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  REQUIRE(folder != nullptr);
  return std::string(folder) + "/" + name;
}

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  INFO(path);
  REQUIRE(stream.good());
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace capstan::testing
