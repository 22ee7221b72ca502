#include "common/tensor/durable_file.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan {
namespace {

std::string TestFolder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  REQUIRE(folder != nullptr);
  return folder;
}

std::string ReadAll(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST_CASE("Durable file: parts follow one another, and a file is replaced whole",
          "[common][tensor]") {
  const std::string folder = TestFolder() + "/a/b";
  REQUIRE_OK(MakeDirectories(folder));
  REQUIRE_OK(MakeDirectories(folder));
  const std::string path = folder + "/file";
  REQUIRE_OK(WriteFileDurably(path, {"a long first text, ", "", "in parts"}));
  CHECK(ReadAll(path) == "a long first text, in parts");
  REQUIRE_OK(WriteFileDurably(path, {"short"}));
  CHECK(ReadAll(path) == "short");
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
}

TEST_CASE("Durable file: a failure names the path and leaves nothing", "[common][tensor]") {
  const std::string folder = TestFolder() + "/c";
  REQUIRE_OK(MakeDirectories(folder + "/taken/inside"));
  CHECK_STATUS(WriteFileDurably(folder + "/missing/file", {"x"}), absl::StatusCode::kNotFound,
               folder + "/missing/file");
  // A folder that is not empty cannot be renamed over.
  CHECK_FALSE(WriteFileDurably(folder + "/taken", {"x"}).ok());
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
  REQUIRE_OK(WriteFileDurably(folder + "/file", {"x"}));
  CHECK_FALSE(MakeDirectories(folder + "/file/under").ok());
}

}  // namespace
}  // namespace capstan
