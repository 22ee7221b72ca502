#include "common/examples/parsers/svmlight_parser.h"

#include <catch2/catch.hpp>
#include <limits>

#include "common/examples/testing/parser_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::svmlight_parser_test {
namespace {

using ::capstan::testing::CheckSurvives;
using ::capstan::testing::ParseLine;

absl::Status ErrorOf(absl::string_view line) {
  SvmlightParser parser;
  ExampleBatch batch;
  batch.AddFeature(1, 1, 0);
  batch.Finish(1);
  const absl::Status status = parser.Parse(line, &batch);
  CHECK(batch.count() == 1);
  CHECK(batch.value_count() == 1);
  return status;
}

TEST_CASE("SVMlight: label, indices and values", "[common][examples]") {
  SvmlightParser parser;
  const ExampleBatch batch = ParseLine(parser, "-1 3:1 11:0.5 \t 18446744073709551615:-2e3 ");
  REQUIRE(batch.count() == 1);
  CHECK(batch.labels()[0] == -1);
  CHECK(batch.keys() == absl::Span<const uint64_t>({3, 11, std::numeric_limits<uint64_t>::max()}));
  CHECK(batch.values() == absl::Span<const float>({1, 0.5, -2000}));
  CHECK(batch.fields() == absl::Span<const int32_t>({0, 0, 0}));
}

TEST_CASE("SVMlight: labels are kept as they are", "[common][examples]") {
  SvmlightParser parser;
  CHECK(ParseLine(parser, "+1 1:1").labels()[0] == 1);
  CHECK(ParseLine(parser, "1").labels()[0] == 1);
  CHECK(ParseLine(parser, "0 5:0").labels()[0] == 0);
  CHECK(ParseLine(parser, "\t-2.5e-1 ").labels()[0] == -0.25f);
  CHECK(ParseLine(parser, "0 0:7").keys()[0] == 0);
}

TEST_CASE("SVMlight: comments, blank lines and query ids", "[common][examples]") {
  SvmlightParser parser;
  for (const char* line : {"", " ", "\t ", "# a comment", "  #1 2:3", "#"}) {
    INFO(line);
    CHECK(ParseLine(parser, line).count() == 0);
  }
  CHECK(ParseLine(parser, "1 2:3 # 4:5").value_count() == 1);
  CHECK(ParseLine(parser, "1 2:3#4:5").value_count() == 1);
  CHECK(ParseLine(parser, "1#2:3").value_count() == 0);
  const ExampleBatch batch = ParseLine(parser, "3 qid:18 1:0.5 2:1");
  CHECK(batch.labels()[0] == 3);
  CHECK(batch.keys() == absl::Span<const uint64_t>({1, 2}));
  CHECK(ParseLine(parser, "3 qid:18").count() == 1);
}

TEST_CASE("SVMlight: errors say where, what was found and what was expected",
          "[common][examples]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(ErrorOf("abc 1:1"), code,
               "byte 1: the label (text of 3 bytes) is no number, expected a finite number");
  CHECK_STATUS(ErrorOf("1:1 2:1"), code, "byte 1: the label (text of 3 bytes) is no number");
  CHECK_STATUS(ErrorOf("1,2 2:1"), code, "byte 1: the label (text of 3 bytes) is no number");
  CHECK_STATUS(ErrorOf(" nan 1:1"), code, "byte 2: the label (text of 3 bytes) is not finite");
  CHECK_STATUS(ErrorOf("1 2"), code,
               "byte 3: the feature (text of 1 byte) is no index:value, expected a whole number "
               "and a colon");
  CHECK_STATUS(ErrorOf("1 -2:1"), code, "byte 3: the feature (text of 4 bytes) is no index:value");
  CHECK_STATUS(ErrorOf("1 2: 3"), code, "byte 5: the value (text of 0 bytes) is no number");
  CHECK_STATUS(ErrorOf("1 2:3x 4:5"), code, "byte 5: the value (text of 2 bytes) is no number");
  CHECK_STATUS(ErrorOf("1 2:3:4"), code, "byte 5: the value (text of 3 bytes) is no number");
  CHECK_STATUS(ErrorOf("1 2:-inf"), code, "byte 5: the value (text of 4 bytes) is not finite");
  CHECK_STATUS(ErrorOf("1 2:1e39"), code, "byte 5: the value (text of 4 bytes) is out of range");
  CHECK_STATUS(ErrorOf("1 18446744073709551616:1"), code,
               "byte 3: the index (text of 22 bytes) is above 2^64 - 1");
  CHECK_STATUS(ErrorOf("1 5:1 7:1 3:1"), code,
               "byte 11: the index is not above the one before it, expected indices that ascend");
  CHECK_STATUS(ErrorOf("1 5:1 5:1"), code, "byte 7: the index is not above");
  CHECK_STATUS(ErrorOf("1 0:1 0:1"), code, "byte 7: the index is not above");
  CHECK_STATUS(ErrorOf("1 qid:x 1:1"), code,
               "byte 7: the query (text of 1 byte) is no whole number, expected one after qid:");
  CHECK_STATUS(ErrorOf("1 1:1 qid:2"), code, "byte 7: the feature (text of 5 bytes)");
  CHECK_STATUS(ErrorOf(absl::string_view("1 2:3\0", 6)), code,
               "byte 5: the value (text of 2 bytes)");
}

TEST_CASE("SVMlight: no bytes crash it or harm the batch", "[common][examples]") {
  SvmlightParser parser;
  CheckSurvives(parser, {"+1 qid:3 1:0.5 22:-1e3 18446744073709551615:7 # note", "-1 3:1 11:1 14:1",
                         "0", ""});
}

}  // namespace
}  // namespace capstan::svmlight_parser_test
