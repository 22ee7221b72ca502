// Real files, where they are: see README.md for the folder that CAPSTAN_TEST_DATA names.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "common/examples/parsers/columns_parser.h"
#include "common/examples/parsers/criteo_parser.h"
#include "common/examples/parsers/svmlight_parser.h"
#include "common/examples/parsers/text_parser.h"
#include "common/examples/sets/example_source.h"
#include "common/examples/testing/example_files.h"
#include "common/examples/testing/parser_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::real_data_test {
namespace {

using ::capstan::testing::RealData;
using ::capstan::testing::SameExamples;

ExampleBatch ReadAll(const std::string& path, LineParser& parser, int64_t range_bytes) {
  ExampleBatch all(parser.dense_columns());
  ExampleBatch batch;
  BadLines bad_lines(0);
  REQUIRE_OK_AND_ASSIGN(const auto ranges, ListRanges({path}, range_bytes));
  for (const FileRange& range : ranges) {
    REQUIRE_OK_AND_ASSIGN(const auto source, ExampleSource::Open(range, &parser, &bad_lines, {}));
    do {
      REQUIRE_OK(source->Next(1000, &batch));
      all.Append(batch, 0, batch.count());
    } while (batch.count() > 0);
  }
  REQUIRE_OK(bad_lines.Finish());
  return all;
}

// The examples of the file, the same however it is cut.
ExampleBatch ReadFile(const std::string& path, LineParser& parser) {
  ExampleBatch whole = ReadAll(path, parser, int64_t{1} << 40);
  for (const int64_t range_bytes : {10'000, 99'991, 1'000'000}) {
    CHECK(SameExamples(ReadAll(path, parser, range_bytes), whole));
  }
  return whole;
}

TEST_CASE("Real data: a9a has 32,561 examples of 123 features", "[common][examples]") {
  const auto path = RealData("a9a/a9a");
  if (!path.has_value()) return;
  SvmlightParser parser;
  const ExampleBatch all = ReadFile(*path, parser);
  CHECK(all.count() == 32'561);
  CHECK(std::count(all.labels().begin(), all.labels().end(), 1.0f) == 7'841);
  CHECK(std::count(all.labels().begin(), all.labels().end(), -1.0f) == 24'720);
  CHECK(*std::max_element(all.keys().begin(), all.keys().end()) == 123);
}

TEST_CASE("Real data: Criteo's sample has 7,200 examples of 13 counts and 26 categories",
          "[common][examples]") {
  const auto path = RealData("criteo-sample/train.tsv");
  if (!path.has_value()) return;
  CriteoParser parser({});
  const ExampleBatch all = ReadFile(*path, parser);
  CHECK(all.count() == 7'200);
  CHECK(all.dense().size() == 7'200 * 13);
  CHECK(all.fields().back() <= 25);
  const auto clicks = std::count(all.labels().begin(), all.labels().end(), 1.0f);
  CHECK(clicks + std::count(all.labels().begin(), all.labels().end(), 0.0f) == 7'200);
  CHECK(clicks > 0);
}

TEST_CASE("Real data: the anime ratings are of 4,714 users and 7,157 items", "[common][examples]") {
  const auto path = RealData("anime-ratings/ratings.tsv.gz");
  if (!path.has_value()) return;
  using Kind = ColumnsParser::Kind;
  REQUIRE_OK_AND_ASSIGN(
      const auto parser,
      ColumnsParser::Create({.columns = {{.kind = Kind::kId, .name = "User_ID"},
                                         {.kind = Kind::kId, .name = "Anime_ID"},
                                         {.kind = Kind::kLabel, .name = "Feedback"}},
                             .separator = '\t',
                             .quotes = false,
                             .header = true}));
  const ExampleBatch all = ReadFile(*path, *parser);
  CHECK(all.count() == 419'943);
  std::set<uint64_t> users;
  std::set<uint64_t> items;
  for (size_t i = 0; i < all.keys().size(); i += 2) {
    users.insert(all.keys()[i]);
    items.insert(all.keys()[i + 1]);
  }
  CHECK(users.size() == 4'714);
  CHECK(items.size() == 7'157);
  CHECK(*std::min_element(all.labels().begin(), all.labels().end()) == 1);
  CHECK(*std::max_element(all.labels().begin(), all.labels().end()) == 10);
}

TEST_CASE("Real data: Shakespeare has 202,651 words", "[common][examples]") {
  const auto path = RealData("tinyshakespeare/input.txt");
  if (!path.has_value()) return;
  TextParser parser({});
  CHECK(ReadFile(*path, parser).value_count() == 202'651);
}

}  // namespace
}  // namespace capstan::real_data_test
