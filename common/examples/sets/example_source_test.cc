#include "common/examples/sets/example_source.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/examples/parsers/columns_parser.h"
#include "common/examples/parsers/svmlight_parser.h"
#include "common/examples/parsers/text_parser.h"
#include "common/examples/testing/example_files.h"
#include "common/examples/testing/parser_checks.h"
#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"

namespace capstan::example_source_test {
namespace {

using ::capstan::testing::Gzip;
using ::capstan::testing::SameExamples;
using ::capstan::testing::TemporaryFolder;
using ::capstan::testing::ToBytes;

// All examples of the ranges, read `count` at a time.
absl::StatusOr<ExampleBatch> ReadAll(const std::vector<FileRange>& ranges, LineParser& parser,
                                     BadLines& bad_lines, int64_t count) {
  ExampleBatch all(parser.dense_columns());
  ExampleBatch batch;
  for (const FileRange& range : ranges) {
    CAPSTAN_ASSIGN_OR_RETURN(const auto source,
                             ExampleSource::Open(range, &parser, &bad_lines, {}));
    while (true) {
      CAPSTAN_RETURN_IF_ERROR(source->Next(count, &batch));
      all.Append(batch, 0, batch.count());
      if (batch.count() < count) break;
    }
    CAPSTAN_RETURN_IF_ERROR(source->Next(count, &batch));
    CHECK(batch.count() == 0);
  }
  CAPSTAN_RETURN_IF_ERROR(bad_lines.Finish());
  return all;
}

absl::StatusOr<ExampleBatch> ReadFile(const std::string& path, LineParser& parser, int64_t count,
                                      int64_t range_bytes, double max_bad_fraction = 0) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto ranges, ListRanges({path}, range_bytes));
  BadLines bad_lines(max_bad_fraction);
  return ReadAll(ranges, parser, bad_lines, count);
}

std::string SvmlightLines(int count) {
  std::string text = "# made by hand\n";
  for (int i = 0; i < count; ++i) {
    text += std::to_string(i % 2) + " " + std::to_string(i) + ":1 " + std::to_string(2 * i + 1) +
            ":0.5\n";
  }
  return text;
}

TEST_CASE("Example source: batches of any size over ranges of any size", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes(SvmlightLines(100)));
  SvmlightParser parser;
  REQUIRE_OK_AND_ASSIGN(const ExampleBatch whole, ReadFile(path, parser, 1000, 1 << 20));
  REQUIRE(whole.count() == 100);
  CHECK(whole.example(70).keys == absl::Span<const uint64_t>({70, 141}));
  for (const int64_t count : {1, 3, 64, 100}) {
    for (const int64_t range_bytes : {1, 10, 100, 1000}) {
      REQUIRE_OK_AND_ASSIGN(const ExampleBatch found, ReadFile(path, parser, count, range_bytes));
      REQUIRE(SameExamples(found, whole));
    }
  }
  const std::string packed = folder.Write("f.gz", Gzip(ToBytes(SvmlightLines(100))));
  REQUIRE_OK_AND_ASSIGN(const ExampleBatch found, ReadFile(packed, parser, 7, 10));
  CHECK(SameExamples(found, whole));
}

TEST_CASE("Example source: a line of several examples is spread over batches",
          "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("a b c d e f g\nh\n\ni j k"));
  TextParser parser({.words_max = 2});
  for (const int64_t count : {1, 2, 3, 4, 5, 100}) {
    REQUIRE_OK_AND_ASSIGN(const ExampleBatch all, ReadFile(path, parser, count, 1 << 20));
    CHECK(all.row_begin() == absl::Span<const int64_t>({0, 2, 4, 6, 7, 8, 10, 11}));
  }
}

TEST_CASE("Example source: text without newlines is read in pieces", "[common][examples]") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += " word" + std::to_string(i % 1000);
  const std::string path = folder.Write("f", ToBytes(text));
  TextParser parser({});
  BadLines bad_lines(0);
  REQUIRE_OK_AND_ASSIGN(const auto ranges, ListRanges({path}, 100'000));
  CHECK(ranges.size() > 5);
  REQUIRE_OK_AND_ASSIGN(const ExampleBatch all, ReadAll(ranges, parser, bad_lines, 10));
  CHECK(all.value_count() == 100'000);
  CHECK(bad_lines.lines() >= static_cast<int64_t>(text.size()) / (64 * 1024));
  for (int64_t i = 0; i < all.value_count(); i += 999) {
    const auto at = static_cast<size_t>(i);
    CHECK(all.keys()[at] == all.keys()[at % 1000]);
  }
}

TEST_CASE("Example source: the header is that of each file, not of each range",
          "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("id,label\n1,0\n2,1\n3,0\n"));
  using Kind = ColumnsParser::Kind;
  REQUIRE_OK_AND_ASSIGN(const auto parser,
                        ColumnsParser::Create({.columns = {{.kind = Kind::kId, .name = "id"},
                                                           {.kind = Kind::kLabel, .name = "label"}},
                                               .header = true}));
  for (const int64_t range_bytes : {1, 5, 100}) {
    REQUIRE_OK_AND_ASSIGN(const ExampleBatch all, ReadFile(path, *parser, 2, range_bytes));
    CHECK(all.keys() == absl::Span<const uint64_t>({1, 2, 3}));
  }
  const std::string wrong = folder.Write("g", ToBytes("1,0\n2,1\n"));
  CHECK_STATUS(ReadFile(wrong, *parser, 2, 100), absl::StatusCode::kInvalidArgument,
               wrong + ":1: the header's column 1 is text of 1 byte, expected 'id'");
}

TEST_CASE("Example source: bad lines are left out, counted and named", "[common][examples]") {
  const TemporaryFolder folder;
  std::string text = SvmlightLines(50) + "bad\n" + SvmlightLines(49);
  const std::string path = folder.Write("f", ToBytes(text));
  SvmlightParser parser;
  for (const int64_t range_bytes : {20, 200, 100'000}) {
    REQUIRE_OK_AND_ASSIGN(const auto all, ReadFile(path, parser, 10, range_bytes, 0.1));
    CHECK(all.count() == 99);
    CHECK_STATUS(ReadFile(path, parser, 10, range_bytes), absl::StatusCode::kDataLoss,
                 path + ":52: byte 1: the label (text of 3 bytes) is no number");
    CHECK_STATUS(ReadFile(path, parser, 10, range_bytes, 0.001), absl::StatusCode::kDataLoss,
                 "1 of 102 lines are malformed (0.98 %), expected at most 0.1 %: " + path + ":52:");
  }
}

TEST_CASE("Example source: an error empties the batch", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("1 1:1\n1 2:1\nbad\n"));
  SvmlightParser parser;
  BadLines bad_lines(0);
  REQUIRE_OK_AND_ASSIGN(const auto source,
                        ExampleSource::Open({path, 0, 16}, &parser, &bad_lines, {}));
  ExampleBatch batch;
  CHECK_STATUS(source->Next(10, &batch), absl::StatusCode::kDataLoss, path + ":3");
  CHECK(batch.count() == 0);
  BadLines none(0);
  REQUIRE_OK_AND_ASSIGN(const auto narrow,
                        ExampleSource::Open({path, 0, 16}, &parser, &none, {.line_bytes_max = 4}));
  CHECK_STATUS(narrow->Next(10, &batch), absl::StatusCode::kDataLoss,
               path + ":1: a line of more than 4 bytes");
}

}  // namespace
}  // namespace capstan::example_source_test
