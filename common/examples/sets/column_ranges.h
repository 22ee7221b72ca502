// Which column of a line is which column of a specification.
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

// Returns the fault of the range of columns[index].
struct ColumnRangeError {
  int index = 0;
  std::string found;
  std::string expected;
};

// One entry for each column of a line, in order, in *line: that of `columns` that says what it is;
// null: it is in no range, and skipped. Without any range: the columns as they stand.
// Errors (*line is unspecified): a range that is none, or not within [1, kLineColumnsMax]; ranges
// on some of the columns only; one that overlaps another; a name for several columns.
std::optional<ColumnRangeError> ColumnsOfLine(const v1::Columns& columns,
                                              std::vector<const v1::Column*>* line);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_COLUMN_RANGES_H_
