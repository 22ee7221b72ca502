#include "common/observability/printable.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::printable_test {
namespace {

TEST_CASE("Printable: no character that controls a terminal is left", "[observability]") {
  CHECK(Printable("a\x1b]0;owned\x07 b") == "a\\u001b]0;owned\\u0007 b");
  CHECK(Printable("\x7f\r") == "\\u007f\\r");
  CHECK(Printable(std::string("\0", 1)) == "\\u0000");
  CHECK(Printable("\xc2\x9b"
                  "31m") == "\\u009b31m");  // C1 in UTF-8.
  CHECK(Printable("\x9b"
                  "31m") == "\\x9b31m");  // C1 as a byte.
  CHECK(Printable("\xe2\x80\xae"
                  "txt.exe") == "\\u202etxt.exe");  // Right to left.
  CHECK(Printable("\xe2\x80\xa8\xe2\x81\xa6\xd8\x9c") == "\\u2028\\u2066\\u061c");
  CHECK(Printable("\xc3(\xf0\x9f\x98") == "\\xc3(\\xf0\\x9f\\x98");
  for (int byte = 0; byte < 256; ++byte) {
    for (const char c : Printable(std::string(1, static_cast<char>(byte)))) {
      CHECK((c >= ' ' && c <= '~'));
    }
  }
}

TEST_CASE("Printable: other text stays, lines if they are wanted", "[observability]") {
  const std::string plain = "Zürich 東京 😀 \\n \xc2\xa0";
  CHECK(Printable(plain) == plain);
  CHECK(Printable("a\n\tb\r\n") == "a\\n\\tb\\r\\n");
  CHECK(Printable("a\n\tb\r\n\x1b", Lines::kMany) == "a\n\tb\\r\n\\u001b");
  CHECK(Printable("").empty());
}

}  // namespace
}  // namespace capstan::printable_test
