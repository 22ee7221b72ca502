#include "common/examples/parsers/criteo_parser.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/examples/feature_hash.h"
#include "common/examples/testing/parser_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::criteo_parser_test {
namespace {

using ::capstan::testing::CheckSurvives;
using ::capstan::testing::ParseLine;

// The columns of a line in which nothing is missing.
std::vector<std::string> WholeLine() {
  std::vector<std::string> columns = {"1"};
  for (int i = 0; i < 13; ++i) columns.push_back(std::to_string(i));
  for (int i = 0; i < 26; ++i) columns.push_back("68fd1e" + std::to_string(10 + i));
  return columns;
}

std::string Joined(const std::vector<std::string>& columns) { return absl::StrJoin(columns, "\t"); }

absl::Status ErrorWith(size_t column, const std::string& text) {
  CriteoParser parser({});
  ExampleBatch batch(kCriteoCounts);
  std::vector<std::string> columns = WholeLine();
  columns[column - 1] = text;
  const absl::Status status = parser.Parse(Joined(columns), &batch);
  CHECK(batch.count() == 0);
  CHECK(batch.value_count() == 0);
  return status;
}

TEST_CASE("Criteo: counts become logarithms and categories keys", "[common][examples]") {
  CriteoParser parser({});
  const ExampleBatch batch = ParseLine(parser, Joined(WholeLine()));
  REQUIRE(batch.count() == 1);
  CHECK(batch.labels()[0] == 1);
  for (size_t i = 0; i < 13; ++i) CHECK(batch.dense()[i] == std::log1p(static_cast<float>(i)));
  REQUIRE(batch.value_count() == 26);
  for (int32_t i = 0; i < 26; ++i) {
    const auto at = static_cast<size_t>(i);
    CHECK(batch.keys()[at] == HashFeature(i, "68fd1e" + std::to_string(10 + i)));
    CHECK(batch.fields()[at] == i);
    CHECK(batch.values()[at] == 1);
  }
}

TEST_CASE("Criteo: what is missing or negative is 0 or no key", "[common][examples]") {
  CriteoParser parser({});
  const ExampleBatch none = ParseLine(parser, "0" + std::string(39, '\t'));
  CHECK(none.count() == 1);
  CHECK(none.value_count() == 0);
  for (const float value : none.dense()) CHECK(value == 0);
  std::vector<std::string> columns = WholeLine();
  columns[2] = "-2";
  columns[14] = "";
  const ExampleBatch some = ParseLine(parser, Joined(columns));
  CHECK(some.dense()[1] == 0);
  CHECK(some.value_count() == 25);
  CHECK(some.fields()[0] == 1);
}

TEST_CASE("Criteo: buckets fold all keys", "[common][examples]") {
  CriteoParser parser({.hash_buckets = 1000});
  const ExampleBatch batch = ParseLine(parser, Joined(WholeLine()));
  for (const uint64_t key : batch.keys()) CHECK(key < 1000);
  CHECK(batch.keys()[3] == HashFeature(3, "68fd1e13") % 1000);
}

TEST_CASE("Criteo: errors name the column", "[common][examples]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(ErrorWith(1, "2"), code,
               "column 1: found text of 1 byte, expected the label 0 or 1");
  CHECK_STATUS(ErrorWith(1, ""), code, "column 1: found text of 0 bytes");
  CHECK_STATUS(ErrorWith(2, "1.5"), code,
               "column 2: found text of 3 bytes, expected a whole number of 64 bits, or nothing");
  CHECK_STATUS(ErrorWith(14, "9223372036854775808"), code, "column 14: found text of 19 bytes");
  CHECK_STATUS(ErrorWith(15, "xyz"), code,
               "column 15: found text of 3 bytes, expected 1 to 16 hexadecimal digits, or nothing");
  CHECK_STATUS(ErrorWith(40, "00112233445566778"), code, "column 40: found text of 17 bytes");
  CHECK_STATUS(ErrorWith(40, "a\tb"), code, "found 41 columns, expected 40 between tabs");
  CriteoParser parser({});
  ExampleBatch batch(kCriteoCounts);
  CHECK_STATUS(parser.Parse("", &batch), code, "column 1: found text of 0 bytes");
  CHECK_STATUS(parser.Parse("0\t1\t2", &batch), code, "found 3 columns, expected 40");
  CHECK_STATUS(parser.Parse("0" + std::string(38, '\t'), &batch), code, "found 39 columns");
}

TEST_CASE("Criteo: no bytes crash it or harm the batch", "[common][examples]") {
  CriteoParser parser({});
  CheckSurvives(parser, {Joined(WholeLine()), "0" + std::string(39, '\t')});
}

}  // namespace
}  // namespace capstan::criteo_parser_test
