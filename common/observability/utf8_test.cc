#include "common/observability/utf8.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::utf8_test {
namespace {

TEST_CASE("UTF-8: sequences of one to four bytes are recognised", "[utf8]") {
  CHECK(Utf8SequenceLength("a") == 1);
  CHECK(Utf8SequenceLength("é!") == 2);
  CHECK(Utf8SequenceLength("€!") == 3);
  CHECK(Utf8SequenceLength("😀!") == 4);
  CHECK(Utf8SequenceLength("\xf4\x8f\xbf\xbf") == 4);  // U+10FFFF, the last one.
}

TEST_CASE("UTF-8: what only looks like a sequence is none", "[utf8]") {
  for (const std::string text :
       {"\x80", "\xff", "\xe2\x82",  // A stray byte, an impossible one, one cut short.
        "\xc0\x80", "\xe0\x9f\xbf",  // Overlong.
        "\xf0\x8f\xbf\xbf",          // Overlong.
        "\xed\xa0\x80",              // A surrogate.
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {  // Above U+10FFFF.
    CAPTURE(text.size());
    CHECK(Utf8SequenceLength(text) == 0);
  }
}

TEST_CASE("UTF-8: bytes that fit nowhere become question marks, the rest stays", "[utf8]") {
  CHECK(ToValidUtf8("") == "");
  CHECK(ToValidUtf8("naïve €") == "naïve €");
  CHECK(ToValidUtf8("a\xff\xe2\x82"
                    "b") == "a???b");
}

}  // namespace
}  // namespace capstan::utf8_test
