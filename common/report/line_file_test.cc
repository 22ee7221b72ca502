#include "common/report/line_file.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::line_file_test {
namespace {

TEST_CASE("LineFile: opening again appends, after a torn line on a new one", "[common][report]") {
  const std::string path = testing::TestPath("lines");
  std::ofstream(path) << "whole\nto";
  for (int i = 0; i < 2; ++i) {
    REQUIRE_OK_AND_ASSIGN(const auto file, LineFile::Open(path));
    REQUIRE_OK(file->Append("a\nb\n"));
  }
  CHECK(testing::ReadFile(path) == "whole\nto\na\nb\na\nb\n");
}

TEST_CASE("LineFile: errors name the file", "[common][report]") {
  const std::string path = testing::TestPath("missing/lines");
  CHECK_STATUS(LineFile::Open(path), absl::StatusCode::kNotFound, "opening " + path);
}

TEST_CASE("LineFile: a full disk is an error of Append", "[common][report]") {
  REQUIRE_OK_AND_ASSIGN(const auto file, LineFile::Open("/dev/full"));
  CHECK_STATUS(file->Append("line\n"), absl::StatusCode::kResourceExhausted,
               "appending to /dev/full");
}

}  // namespace
}  // namespace capstan::line_file_test
