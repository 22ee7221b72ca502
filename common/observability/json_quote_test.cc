#include "common/observability/json_quote.h"

#include <catch2/catch.hpp>

namespace capstan::json_quote_test {
namespace {

TEST_CASE("JSON strings: quotes, backslashes and control characters are escaped", "[log]") {
  CHECK(JsonQuote(R"(say "hi" \ bye)") == R"("say \"hi\" \\ bye")");
  CHECK(JsonQuote(absl::string_view("\0\x01\n", 3)) == R"("\u0000\u0001\n")");
  CHECK(JsonQuote("") == R"("")");
}

TEST_CASE("JSON strings: UTF-8 passes, other bytes become U+FFFD", "[log]") {
  CHECK(JsonQuote("é€😀") == "\"é€😀\"");
  CHECK(JsonQuote("a\xff"
                  "b") == R"("a\ufffdb")");
  CHECK(JsonQuote("\xe2\x82") == R"("\ufffd\ufffd")");                      // Cut short.
  CHECK(JsonQuote("\xc0\x80") == R"("\ufffd\ufffd")");                      // Overlong.
  CHECK(JsonQuote("\xed\xa0\x80") == R"("\ufffd\ufffd\ufffd")");            // A surrogate.
  CHECK(JsonQuote("\xf4\x90\x80\x80") == R"("\ufffd\ufffd\ufffd\ufffd")");  // Above U+10FFFF.
}

}  // namespace
}  // namespace capstan::json_quote_test
