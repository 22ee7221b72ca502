#include "common/job/parse/text_index.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

namespace capstan::text_index_test {
namespace {

// Protobuf's rule, one byte at a time.
size_t OffsetByCounting(const std::string& text, int line, int column) {
  size_t offset = 0;
  for (; line > 0; --line) {
    const size_t end = text.find('\n', offset);
    if (end == std::string::npos) return text.size();
    offset = end + 1;
  }
  for (int at = 0; at < column && offset < text.size() && text[offset] != '\n'; ++offset) {
    at = text[offset] == '\t' ? (at / 8 + 1) * 8 : at + 1;
  }
  return offset;
}

TextPosition PositionByCounting(const std::string& text, size_t offset) {
  const auto begin = text.begin();
  const auto at = begin + static_cast<std::ptrdiff_t>(std::min(offset, text.size()));
  const auto line_begin = std::find(std::make_reverse_iterator(at), text.rend(), '\n').base();
  return {static_cast<int>(std::count(begin, at, '\n')) + 1, static_cast<int>(at - line_begin) + 1};
}

TEST_CASE("TextIndex: finds what counting finds", "[job]") {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += std::string(static_cast<size_t>(i % 7), '\t') + "ab\tc\n";
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("\n\n"), lines, std::string(3000, 'x'),
        std::string(3000, '\n'), std::string(600, '\t') + "a\n\tb"}) {
    const TextIndex index(text);
    for (size_t offset = 0; offset <= text.size() + 2; offset += 1 + offset / 16) {
      INFO(text.size() << " bytes, offset " << offset);
      REQUIRE(index.PositionOf(offset) == PositionByCounting(text, offset));
    }
    const int line_count = static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 2;
    for (int line = 0; line <= line_count; line += 1 + line / 8) {
      for (const int column : {0, 1, 7, 8, 9, 16, 17, 255, 256, 257, 2999, 4800, 10'000}) {
        INFO(text.size() << " bytes, line " << line << ", column " << column);
        REQUIRE(index.OffsetOf(line, column) == OffsetByCounting(text, line, column));
      }
    }
  }
}

}  // namespace
}  // namespace capstan::text_index_test
