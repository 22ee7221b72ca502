// TableSample: what the first lines of a CSV or TSV file say of its columns.
//
// Pure. Thread safety: values and pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_INIT_TABLE_SAMPLE_H_
#define CAPSTAN_SCHEDULER_CLI_INIT_TABLE_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"

namespace capstan::cli {

struct ColumnSample {
  static constexpr size_t kValuesMax = 1000;

  std::string name;                                        // Of the header; empty: there is none.
  int64_t empty = 0;                                       // Lines where it is empty.
  int64_t numbers = 0;                                     // Lines where it is a finite number.
  int64_t texts = 0;                                       // Lines where it is something else.
  double mean = 0, deviation = 0, least = 0, largest = 0;  // Of the numbers.
  // How often each value stands there: the first kValuesMax that were seen.
  absl::btree_map<std::string, int64_t> values;

  bool numeric() const { return numbers > 0 && texts == 0; }
  bool constant() const { return values.size() < 2; }
};

struct TableSample {
  char separator = ',';
  bool header = false;
  int64_t rows = 0;  // Lines that were looked at, without the header.
  std::vector<ColumnSample> columns;
};

// The separator is the one of "," "\t" ";" "|" that cuts all lines into the same number of columns,
// two at least; of several the one with the most. The first line is a header if it has no number
// where every other line has one, or if no line has a number and its values stand nowhere else.
// Errors: kInvalidArgument  no line; no separator does: says how many columns each one gives.
absl::StatusOr<TableSample> SampleTable(const std::vector<std::string>& lines);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_INIT_TABLE_SAMPLE_H_
