#include "common/examples/parsers/text_parser.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/examples/feature_hash.h"
#include "common/examples/testing/parser_checks.h"

namespace capstan::text_parser_test {
namespace {

using ::capstan::testing::CheckSurvives;
using ::capstan::testing::ParseLine;

TEST_CASE("Text: words become keys in their order", "[common][examples]") {
  TextParser parser({});
  const ExampleBatch batch = ParseLine(parser, "  to be\tor not\r to be ");
  REQUIRE(batch.count() == 1);
  CHECK(batch.labels()[0] == 0);
  CHECK(batch.keys() == absl::Span<const uint64_t>({HashFeature(0, "to"), HashFeature(0, "be"),
                                                    HashFeature(0, "or"), HashFeature(0, "not"),
                                                    HashFeature(0, "to"), HashFeature(0, "be")}));
  CHECK(batch.values() == absl::Span<const float>({1, 1, 1, 1, 1, 1}));
  CHECK(batch.fields() == absl::Span<const int32_t>({0, 0, 0, 0, 0, 0}));
}

TEST_CASE("Text: a line without words gives no example", "[common][examples]") {
  TextParser parser({});
  for (const char* line : {"", " ", "\t \r\v\f"}) CHECK(ParseLine(parser, line).count() == 0);
}

TEST_CASE("Text: long lines are cut into examples of words_max words", "[common][examples]") {
  TextParser parser({.words_max = 3});
  CHECK(ParseLine(parser, "a b").row_begin() == absl::Span<const int64_t>({0, 2}));
  CHECK(ParseLine(parser, "a b c").row_begin() == absl::Span<const int64_t>({0, 3}));
  CHECK(ParseLine(parser, "a b c d ").row_begin() == absl::Span<const int64_t>({0, 3, 4}));
  CHECK(ParseLine(parser, "a b c d e f g").row_begin() == absl::Span<const int64_t>({0, 3, 6, 7}));
}

TEST_CASE("Text: buckets fold the keys", "[common][examples]") {
  TextParser parser({.hash_buckets = 7});
  CHECK(ParseLine(parser, "word").keys()[0] == HashFeature(0, "word") % 7);
}

TEST_CASE("Text: no bytes crash it", "[common][examples]") {
  TextParser parser({.words_max = 4});
  CheckSurvives(parser, {"to be or not to be, that is", " \t x\xc3\xa9y\xff z "});
}

}  // namespace
}  // namespace capstan::text_parser_test
