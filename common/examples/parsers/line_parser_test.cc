#include "common/examples/parsers/line_parser.h"

#include <catch2/catch.hpp>

namespace capstan::line_parser_test {
namespace {

TEST_CASE("Line parser: text in messages is short and printable", "[common][examples]") {
  CHECK(Quoted("") == "''");
  CHECK(Quoted("abc 1") == "'abc 1'");
  CHECK(Quoted(absl::string_view("a\0\t\xff", 4)) == "'a\\x00\\t\\xff'");
  CHECK(Quoted(std::string(40, 'x')) == "'" + std::string(40, 'x') + "'");
  CHECK(Described("") == "text of 0 bytes");
  CHECK(Described("x") == "text of 1 byte");
  CHECK(Described(std::string(41, 'x')) == "text of 41 bytes");
  CHECK(Quoted(std::string(41, 'x')) == "'" + std::string(40, 'x') + "...'");
}

}  // namespace
}  // namespace capstan::line_parser_test
