// Maps the columns of a line to the columns of a specification (v1::Columns).
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_EXAMPLES_SETS_COLUMN_RANGES_H_
#define CAPSTAN_COMMON_EXAMPLES_SETS_COLUMN_RANGES_H_

#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace capstan {

inline constexpr int kLineColumnsMax = 1 << 20;

// The fault in the range of columns[index].
struct ColumnRangeError {
  int index = 0;
  std::string found;
  std::string expected;
};

// Sets *line to one entry for each column of a line, in order: the column of `columns` whose range
// holds it, or null if no range does, and it is skipped. If no column has a range, *line lists
// `columns` in order. Returns nothing if the ranges are right.
// Errors (*line is unspecified): a malformed range, or one not within [1, kLineColumnsMax]; ranges
// on some of the columns only; a range that overlaps another; a name for several columns.
std::optional<ColumnRangeError> ColumnsOfLine(const v1::Columns& columns,
                                              std::vector<const v1::Column*>* line);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_COLUMN_RANGES_H_
