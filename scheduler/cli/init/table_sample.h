// TableSample: statistics of the columns in the first lines of a CSV or TSV file, with which
// `capstan init` chooses a job's columns.
//
// Thread safety: values and pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_INIT_TABLE_SAMPLE_H_
#define CAPSTAN_SCHEDULER_CLI_INIT_TABLE_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace capstan::cli {

struct ColumnSample {
  static constexpr size_t kValuesMax = 1000;

  std::string name;                                        // From the header. Empty: no header.
  int64_t empty = 0;                                       // Lines with no value.
  int64_t numbers = 0;                                     // Lines with a finite number.
  int64_t texts = 0;                                       // Lines with another value.
  double mean = 0, deviation = 0, least = 0, largest = 0;  // Statistics of the numbers.
  // The count of each value, for the first kValuesMax different values.
  std::map<std::string, int64_t> values;

  bool numeric() const { return numbers > 0 && texts == 0; }
  bool constant() const { return values.size() < 2; }
};

struct TableSample {
  char separator = ',';
  bool header = false;
  int64_t rows = 0;  // Number of lines in the sample, without the header.
  std::vector<ColumnSample> columns;
};

// The separator is the one of "," "\t" ";" "|" that cuts all lines into the same number of columns,
// at least two. If several do, it is the one with the most columns. The first line is a header if
// one of its columns has text where every other line has a number or nothing. It is also a header
// if no other line has a number, and none of its values occurs again in the same column.
// Errors: kInvalidArgument  there is no line, or no separator fits: names the number of columns
//                           that each separator gives.
absl::StatusOr<TableSample> SampleTable(const std::vector<std::string>& lines);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_INIT_TABLE_SAMPLE_H_
