#include "common/examples/files/line_position.h"

#include <catch2/catch.hpp>

#include "common/examples/testing/example_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::line_position_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::TemporaryFolder;
using ::capstan::testing::ToBytes;

TEST_CASE("Line position: newlines are counted up to a byte", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("a\n\nbc\n"));
  const int64_t expected[] = {0, 0, 1, 2, 2, 2, 3};
  for (int64_t end = 0; end <= 6; ++end) {
    REQUIRE_OK_AND_ASSIGN(const int64_t newlines, CountNewlines(path, end));
    CHECK(newlines == expected[end]);
  }
  CHECK_STATUS(CountNewlines(path, 7), absl::StatusCode::kDataLoss,
               "f: 6 bytes, expected at least 7");
  const std::string large = folder.Write("g", Bytes(3'000'001, '\n'));
  REQUIRE_OK_AND_ASSIGN(const int64_t newlines, CountNewlines(large, 3'000'001));
  CHECK(newlines == 3'000'001);
}

TEST_CASE("Line position: lines are numbered from 1", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("a\n\nbc\n"));
  CHECK(Locate(path, {.base = 0, .newlines = 0}) == path + ":1");
  CHECK(Locate(path, {.base = 3, .newlines = 4}) == path + ":7");
}

TEST_CASE("Line position: a file that is gone still gives a place", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("gone");
  CHECK(Locate(path, {.base = 1000, .newlines = 4}) == path + ": line 5 after byte 1000");
  CHECK(Locate(path, {.base = 0, .newlines = 4}) == path + ":5");
}

}  // namespace
}  // namespace capstan::line_position_test
