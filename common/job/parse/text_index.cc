#include "common/job/parse/text_index.h"

#include <algorithm>
#include <utility>

namespace capstan {
namespace {

constexpr size_t kStride = 256;
constexpr int kTabWidth = 8;

}  // namespace

TextIndex::TextIndex(absl::string_view text) : text_(text) {
  marks_.reserve(text.size() / kStride + 1);
  Mark mark;
  marks_.push_back(mark);
  while (mark.offset < text.size()) {
    Advance(&mark);
    if (mark.offset % kStride == 0) marks_.push_back(mark);
  }
}

void TextIndex::Advance(Mark* mark) const {
  const char c = text_[mark->offset++];
  if (c == '\n') {
    ++mark->line;
    mark->column = 0;
    mark->line_begin = mark->offset;
  } else {
    mark->column = c == '\t' ? (mark->column / kTabWidth + 1) * kTabWidth : mark->column + 1;
  }
}

size_t TextIndex::OffsetOf(int line, int column) const {
  const auto behind = std::upper_bound(marks_.begin(), marks_.end(), std::pair(line, column),
                                       [](const std::pair<int, int>& wanted, const Mark& mark) {
                                         return wanted < std::pair(mark.line, mark.column);
                                       });
  if (behind == marks_.begin()) return 0;
  Mark mark = *(behind - 1);
  const auto before = [&] {
    if (mark.line != line) return mark.line < line;
    return mark.column < column && text_[mark.offset] != '\n';
  };
  while (mark.offset < text_.size() && before()) Advance(&mark);
  return mark.offset;
}

TextPosition TextIndex::PositionOf(size_t offset) const {
  offset = std::min(offset, text_.size());
  Mark mark = marks_[offset / kStride];
  while (mark.offset < offset) Advance(&mark);
  return {mark.line + 1, static_cast<int>(offset - mark.line_begin) + 1};
}

}  // namespace capstan
