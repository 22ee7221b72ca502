// TextIndex: converts between a line and column of a text and the offset of a byte.
//
// A job file may have millions of fields, each with a position: a look-up costs at most a search
// and a scan of a few hundred bytes, however long the text and its lines are.
// Thread safety: constant after construction.
#ifndef CAPSTAN_COMMON_JOB_PARSE_TEXT_INDEX_H_
#define CAPSTAN_COMMON_JOB_PARSE_TEXT_INDEX_H_

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/fields/field_positions.h"

namespace capstan {

class TextIndex {
 public:
  explicit TextIndex(absl::string_view text);  // `text` outlives the index.

  // The byte at protobuf's line and column: both are counted from 0, and a tab ends at the next
  // multiple of 8. The line's end, or the text's, if there is no such column or line.
  size_t OffsetOf(int line, int column) const;

  // The position of a byte as users count it: lines and bytes of a line, from 1. An offset behind
  // the text gives the position of its end.
  TextPosition PositionOf(size_t offset) const;

 private:
  struct Mark {
    size_t offset = 0;
    size_t line_begin = 0;
    int line = 0;
    int column = 0;  // As protobuf counts.
  };

  void Advance(Mark* mark) const;  // To the next byte.

  absl::string_view text_;
  std::vector<Mark> marks_;  // At every kStride-th byte.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PARSE_TEXT_INDEX_H_
