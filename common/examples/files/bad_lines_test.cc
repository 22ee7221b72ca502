#include "common/examples/files/bad_lines.h"

#include <catch2/catch.hpp>

#include "common/examples/testing/example_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::bad_lines_test {
namespace {

using ::capstan::testing::TemporaryFolder;
using ::capstan::testing::ToBytes;

LinePosition Line(int64_t newlines) { return {.base = 0, .newlines = newlines}; }

void AddGood(BadLines& lines, int count) {
  for (int i = 0; i < count; ++i) REQUIRE_OK(lines.AddGood());
}

TEST_CASE("Bad lines: with no tolerance the first one fails", "[common][examples]") {
  BadLines lines(0);
  REQUIRE_OK(lines.Finish());
  AddGood(lines, 5);
  CHECK_STATUS(lines.AddBad("f", Line(5), "byte 3: no"), absl::StatusCode::kDataLoss,
               "1 of 6 lines are malformed (16.7 %), expected at most 0 %: f:6: byte 3: no");
  CHECK(lines.lines() == 6);
  CHECK(lines.bad() == 1);
}

TEST_CASE("Bad lines: few lines are judged at the end", "[common][examples]") {
  BadLines lines(0.1);
  REQUIRE_OK(lines.AddBad("f", Line(0), "no"));
  CHECK_STATUS(lines.Finish(), absl::StatusCode::kDataLoss, "1 of 1 lines are malformed");
  AddGood(lines, 9);
  REQUIRE_OK(lines.Finish());  // 1 of 10 is not above 10 %.
  REQUIRE_OK(lines.AddBad("f", Line(10), "no"));
  CHECK_STATUS(lines.Finish(), absl::StatusCode::kDataLoss,
               "2 of 11 lines are malformed (18.2 %), expected at most 10 %: f:1: no; f:11: no");
}

TEST_CASE("Bad lines: from 1,000 lines on they are judged at once", "[common][examples]") {
  BadLines lines(0.01);
  for (int i = 0; i < 11; ++i) REQUIRE_OK(lines.AddBad("f", Line(i), "no"));
  AddGood(lines, 988);
  SECTION("by a good line") {
    CHECK_STATUS(lines.AddGood(), absl::StatusCode::kDataLoss, "11 of 1000 lines");
  }
  SECTION("by a bad line") {
    CHECK_STATUS(lines.AddBad("f", Line(999), "no"), absl::StatusCode::kDataLoss,
                 "12 of 1000 lines are malformed (1.2 %), expected at most 1 %");
  }
}

TEST_CASE("Bad lines: a share within the tolerance never fails", "[common][examples]") {
  BadLines lines(0.01);
  for (int i = 0; i < 50; ++i) {
    AddGood(lines, 99);
    REQUIRE_OK(lines.AddBad("f", Line(i), "no"));
  }
  REQUIRE_OK(lines.Finish());
  BadLines all(1);
  for (int i = 0; i < 2000; ++i) REQUIRE_OK(all.AddBad("f", Line(i), "no"));
  REQUIRE_OK(all.Finish());
}

TEST_CASE("Bad lines: the first ten are kept", "[common][examples]") {
  BadLines lines(0.5);
  for (int i = 0; i < 11; ++i) {
    REQUIRE_OK(lines.AddBad("f", Line(i), "reason " + std::to_string(i)));
  }
  const std::string report = lines.Report();
  CHECK_THAT(report, Catch::Contains("f:10: reason 9; ..."));
  CHECK_THAT(report, !Catch::Contains("reason 10"));
}

TEST_CASE("Bad lines: numbers are those of the file for ranges in its middle",
          "[common][examples]") {
  const TemporaryFolder folder;
  const std::string f = folder.Write("f", ToBytes("a\nb\nc\nd\ne\n"));
  const std::string g = folder.Write("g", ToBytes("\n\n\n\n"));
  BadLines lines(0.5);
  REQUIRE_OK(lines.AddBad(f, {.base = 4, .newlines = 0}, "x"));
  REQUIRE_OK(lines.AddBad(f, {.base = 4, .newlines = 2}, "y"));
  REQUIRE_OK(lines.AddBad(g, {.base = 4, .newlines = 1}, "z"));
  REQUIRE_OK(lines.AddBad(f, {.base = 2, .newlines = 0}, "u"));
  CHECK_THAT(lines.Report(),
             Catch::Contains(f + ":3: x; " + f + ":5: y; " + g + ":6: z; " + f + ":2: u"));
}

}  // namespace
}  // namespace capstan::bad_lines_test
