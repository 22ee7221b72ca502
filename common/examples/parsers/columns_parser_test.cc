#include "common/examples/parsers/columns_parser.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "common/examples/feature_hash.h"
#include "common/examples/testing/parser_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::columns_parser_test {
namespace {

using ::capstan::testing::CheckSurvives;
using ::capstan::testing::ParseLine;
using Kind = ColumnsParser::Kind;
using Options = ColumnsParser::Options;

// user id, (skipped), city, age, income (0.5 if missing), bought.
Options Shop() {
  return {.columns = {{.kind = Kind::kId, .name = "user"},
                      {.kind = Kind::kSkip},
                      {.kind = Kind::kCategory, .name = "city"},
                      {.kind = Kind::kDense, .name = "age"},
                      {.kind = Kind::kDense, .name = "income", .missing = 0.5f},
                      {.kind = Kind::kLabel, .name = "bought"}}};
}

std::unique_ptr<ColumnsParser> MakeParser(Options options) {
  REQUIRE_OK_AND_ASSIGN(auto parser, ColumnsParser::Create(std::move(options)));
  return parser;
}

absl::Status ErrorOf(absl::string_view line) {
  const auto parser = MakeParser(Shop());
  ExampleBatch batch(2);
  const absl::Status status = parser->Parse(line, &batch);
  CHECK(batch.count() == 0);
  CHECK(batch.value_count() == 0);
  CHECK(batch.dense().empty());
  return status;
}

TEST_CASE("Columns: each column goes where its kind says", "[common][examples]") {
  const auto parser = MakeParser(Shop());
  CHECK(parser->dense_columns() == 2);
  CHECK(parser->field_count() == 2);
  CHECK_FALSE(parser->has_header());
  const ExampleBatch batch =
      ParseLine(*parser, R"(18446744073709551615,x,"Oslo, ""N""",+41,1e3,1)");
  REQUIRE(batch.count() == 1);
  CHECK(batch.labels()[0] == 1);
  CHECK(batch.dense() == absl::Span<const float>({41, 1000}));
  CHECK(batch.keys() == absl::Span<const uint64_t>({std::numeric_limits<uint64_t>::max(),
                                                    HashFeature(1, R"(Oslo, "N")")}));
  CHECK(batch.values() == absl::Span<const float>({1, 1}));
  CHECK(batch.fields() == absl::Span<const int32_t>({0, 1}));
}

TEST_CASE("Columns: what is missing gives the default, or no key", "[common][examples]") {
  const auto parser = MakeParser(Shop());
  const ExampleBatch batch = ParseLine(*parser, ",,,2,,0");
  CHECK(batch.value_count() == 0);
  CHECK(batch.dense() == absl::Span<const float>({2, 0.5}));
  CHECK(ParseLine(*parser, ",,Rome,2,,0").fields() == absl::Span<const int32_t>({1}));
}

TEST_CASE("Columns: ids of a rating, between tabs, without a fold", "[common][examples]") {
  const auto parser = MakeParser({.columns = {{.kind = Kind::kId},
                                              {.kind = Kind::kId},
                                              {.kind = Kind::kCategory},
                                              {.kind = Kind::kLabel}},
                                  .separator = '\t',
                                  .quotes = false,
                                  .hash_buckets = 10});
  const ExampleBatch batch = ParseLine(*parser, "77\t5\t\"a\t8");
  CHECK(batch.labels()[0] == 8);
  CHECK(batch.keys() == absl::Span<const uint64_t>({77, 5, HashFeature(2, "\"a") % 10}));
}

TEST_CASE("Columns: without a label column labels are 0", "[common][examples]") {
  const auto parser = MakeParser({.columns = {{.kind = Kind::kDense}}});
  CHECK(ParseLine(*parser, "3").labels()[0] == 0);
}

TEST_CASE("Columns: errors name the column", "[common][examples]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(ErrorOf("-1,,,1,,0"), code,
               "column 1 (user): text of 2 bytes is no number, expected a whole number below 2^64");
  CHECK_STATUS(ErrorOf("18446744073709551616,,,1,,0"), code,
               "column 1 (user): text of 20 bytes is out of range");
  CHECK_STATUS(ErrorOf("1,,,,,0"), code,
               "column 4 (age): text of 0 bytes is no number, expected a finite number");
  CHECK_STATUS(ErrorOf("1,,,1,x,0"), code, "column 5 (income): text of 1 byte is no number");
  CHECK_STATUS(ErrorOf("1,,,1,inf,0"), code, "column 5 (income): text of 3 bytes is not finite");
  CHECK_STATUS(ErrorOf("1,,,1,,"), code, "column 6 (bought): text of 0 bytes is no number");
  CHECK_STATUS(ErrorOf("1,,,1,"), code, "found 5 columns, expected 6 with ',' between them");
  CHECK_STATUS(ErrorOf("1,,,1,,0,,"), code, "found 8 columns, expected 6");
  CHECK_STATUS(ErrorOf("1,,\"a,1,,0"), code, "column 3, byte 4: the quote is not closed");
  CHECK_STATUS(ErrorOf("1,,,1,,0,\""), code, "column 7, byte 10: the quote is not closed");
}

TEST_CASE("Columns: the header must have the names of the options", "[common][examples]") {
  Options options = Shop();
  options.header = true;
  const auto parser = MakeParser(options);
  CHECK(parser->has_header());
  const auto code = absl::StatusCode::kInvalidArgument;
  REQUIRE_OK(parser->CheckHeader("user,whatever,city,\"age\",income,bought"));
  CHECK_STATUS(parser->CheckHeader("user,whatever,town,age,income,bought"), code,
               "the header's column 3 is text of 4 bytes, expected 'city'");
  CHECK_STATUS(parser->CheckHeader("user,whatever,city"), code, "found 3 columns, expected 6");
  CHECK_STATUS(parser->CheckHeader("user,whatever,city,age,income,bought,x"), code,
               "found 7 columns, expected 6");
}

TEST_CASE("Columns: options that make no sense are refused", "[common][examples]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(ColumnsParser::Create({}), code, "none of 0 is a feature");
  CHECK_STATUS(ColumnsParser::Create({.columns = {{.kind = Kind::kLabel}, {}}}), code,
               "none of 2 is a feature");
  Options options = Shop();
  options.columns[1].kind = Kind::kLabel;
  CHECK_STATUS(ColumnsParser::Create(options), code, "2 labels, expected at most one");
  options = Shop();
  options.columns[2].missing = 1.0f;
  CHECK_STATUS(ColumnsParser::Create(options), code,
               "column 3 (city): has a default for missing values");
  options.columns[2].missing.reset();
  options.columns[3].missing = std::numeric_limits<float>::infinity();
  CHECK_STATUS(ColumnsParser::Create(options), code, "column 4 (age): the default");
  for (const char separator : {'"', '\n', '\r'}) {
    options = Shop();
    options.separator = separator;
    CHECK_STATUS(ColumnsParser::Create(options), code, "the separator is");
  }
}

// A label with names, two scaled numbers, a bucket.
Options Named() {
  return {.columns = {{.kind = Kind::kLabel, .positive = {"normal.", "1"}},
                      {.kind = Kind::kDense, .log1p = true},
                      {.kind = Kind::kDense, .missing = 3.0f, .subtract = 1, .divide = 4},
                      {.kind = Kind::kBucket, .name = "age", .boundaries = {18, 65}}}};
}

TEST_CASE("Columns: names of labels are 1 for some, or their place in a list",
          "[common][examples]") {
  const auto parser = MakeParser(Named());
  CHECK(ParseLine(*parser, "normal.,0,1,").labels()[0] == 1);
  CHECK(ParseLine(*parser, "1,0,1,").labels()[0] == 1);
  CHECK(ParseLine(*parser, "neptune.,0,1,").labels()[0] == 0);
  CHECK(ParseLine(*parser, ",0,1,").labels()[0] == 0);
  Options options = Named();
  options.columns[0].positive.clear();
  options.columns[0].classes = {"low", "mid", "high"};
  const auto classes = MakeParser(options);
  CHECK(ParseLine(*classes, "low,0,1,").labels()[0] == 0);
  CHECK(ParseLine(*classes, "\"high\",0,1,").labels()[0] == 2);
  ExampleBatch batch(2);
  CHECK_STATUS(classes->Parse("higher,0,1,", &batch), absl::StatusCode::kInvalidArgument,
               "column 1: text of 6 bytes is no class, expected one of the 3 of label.classes");
  CHECK(batch.count() == 0);
}

TEST_CASE("Columns: a label that is no number says how names are explained", "[common][examples]") {
  CHECK_STATUS(
      ErrorOf("1,,,1,,yes"), absl::StatusCode::kInvalidArgument,
      "column 6 (bought): text of 3 bytes is no number, expected a finite number (a name is "
      "explained by label.positive or label.classes)");
}

TEST_CASE("Columns: dense columns are scaled", "[common][examples]") {
  const auto parser = MakeParser(Named());
  const ExampleBatch batch = ParseLine(*parser, "x,-1,9,");
  CHECK(batch.dense()[0] == static_cast<float>(-std::log(2.0)));
  CHECK(batch.dense()[1] == 2);
  // The default for a missing number is scaled as well.
  CHECK(ParseLine(*parser, "x,1e30,,").dense()[1] == 0.5f);
  CHECK(ParseLine(*parser, "x,0,,").dense()[0] == 0);
}

TEST_CASE("Columns: a bucket begins with its boundary", "[common][examples]") {
  const auto parser = MakeParser(Named());
  CHECK(parser->field_count() == 1);
  const auto key = [&](const std::string& age) {
    return ParseLine(*parser, "x,0,0," + age).keys()[0];
  };
  CHECK(key("-1e9") == HashFeature(0, "0"));
  CHECK(key("17.99") == HashFeature(0, "0"));
  CHECK(key("18") == HashFeature(0, "1"));
  CHECK(key("65") == HashFeature(0, "2"));
  CHECK(ParseLine(*parser, "x,0,0,").keys().empty());
  ExampleBatch batch(2);
  CHECK_STATUS(parser->Parse("x,0,0,old", &batch), absl::StatusCode::kInvalidArgument,
               "column 4 (age): text of 3 bytes is no number");
}

TEST_CASE("Columns: options of another kind of column are refused", "[common][examples]") {
  const auto refused = [](size_t column, const auto& change, const char* message) {
    Options options = Named();
    change(options.columns[column]);
    CHECK_STATUS(ColumnsParser::Create(options), absl::StatusCode::kInvalidArgument, message);
  };
  using Column = ColumnsParser::Column;
  refused(
      0, [](Column& c) { c.classes = {"a"}; }, "column 1: has both positive values and");
  refused(
      0,
      [](Column& c) {
        c.positive = {"a", "b", "a"};
      },
      "stands twice");
  refused(
      1, [](Column& c) { c.positive = {"a"}; }, "column 2: has names of labels");
  refused(
      0, [](Column& c) { c.log1p = true; }, "column 1: is scaled");
  refused(
      3, [](Column& c) { c.divide = 2; }, "column 4 (age): is scaled");
  refused(
      1, [](Column& c) { c.divide = 0; }, "column 2: subtracts 0 and divides by 0");
  refused(
      1, [](Column& c) { c.boundaries = {1}; }, "column 2: has 1 boundaries");
  refused(
      3, [](Column& c) { c.boundaries = {}; }, "column 4 (age): has 0 boundaries");
  refused(
      3,
      [](Column& c) {
        c.boundaries = {2, 2};
      },
      "boundary 2 is 2, expected finite numbers");
  const float infinity = std::numeric_limits<float>::infinity();
  refused(
      1, [=](Column& c) { c.subtract = infinity; }, "column 2: subtracts inf");
}

TEST_CASE("Columns: no bytes crash it or harm the batch", "[common][examples]") {
  const auto csv = MakeParser(Shop());
  CheckSurvives(*csv, {R"(12,x,"Oslo, ""N""",+41,1e3,1)", ",,,2,,0"});
  Options options = Shop();
  options.separator = '\t';
  options.quotes = false;
  const auto tsv = MakeParser(options);
  CheckSurvives(*tsv, {"12\tx\tOslo\t41\t1e3\t1", "\t\t\t2\t\t0"});
}

}  // namespace
}  // namespace capstan::columns_parser_test
