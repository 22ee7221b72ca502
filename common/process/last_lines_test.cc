#include "common/process/last_lines.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::last_lines_test {
namespace {

std::string TestFile() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/lines.log";
}

std::string Last(const std::string& contents, int lines_max, int64_t bytes_max) {
  const std::string path = TestFile();
  std::ofstream(path, std::ios::binary) << contents;
  const absl::StatusOr<std::string> text = LastLines(path, lines_max, bytes_max);
  REQUIRE_OK(text);
  return *text;
}

TEST_CASE("LastLines: gives the last lines, with or without a final line break", "[process]") {
  CHECK(Last("a\nb\nc\n", 2, 100) == "b\nc");
  CHECK(Last("a\nb\nc", 2, 100) == "b\nc");
  CHECK(Last("a\nb\nc\n", 3, 100) == "a\nb\nc");
  CHECK(Last("a\nb\nc\n", 9, 100) == "a\nb\nc");
}

TEST_CASE("LastLines: empty lines count", "[process]") {
  CHECK(Last("\nabc\n", 1, 100) == "abc");
  CHECK(Last("\nabc\n", 2, 100) == "\nabc");
  CHECK(Last("a\n\n\nb\n", 3, 100) == "\n\nb");
  CHECK(Last("\n", 1, 100) == "");
  CHECK(Last("", 5, 100) == "");
}

TEST_CASE("LastLines: keeps to the bytes asked for, in whole lines", "[process]") {
  CHECK(Last("first\nsecond\nthird\n", 3, 12) == "third");
  CHECK(Last("first\nsecond\nthird\n", 3, 13) == "second\nthird");
  CHECK(Last("first\nsecond\nthird\n", 3, 6) == "third");
}

TEST_CASE("LastLines: a last line that is too long gives its end", "[process]") {
  CHECK(Last("x\n" + std::string(100, 'a') + "tail", 3, 8) == "aaaatail");
}

TEST_CASE("LastLines: bytes that are not UTF-8 become question marks", "[process]") {
  CHECK(Last("a\xff"
             "b €\n",
             1, 100) == "a?b €");
}

TEST_CASE("LastLines: nothing is asked for, nothing is given", "[process]") {
  CHECK(Last("a\n", 0, 100) == "");
  CHECK(Last("a\n", 1, 0) == "");
}

TEST_CASE("LastLines: a missing file is named", "[process]") {
  CHECK_STATUS(LastLines("/proc/none/task.log", 1, 10), absl::StatusCode::kNotFound,
               "/proc/none/task.log");
}

}  // namespace
}  // namespace capstan::last_lines_test
