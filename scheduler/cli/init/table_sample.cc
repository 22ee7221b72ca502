#include "scheduler/cli/init/table_sample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/examples/parsers/delimited.h"
#include "common/examples/parsers/line_parser.h"
#include "common/examples/parsers/numbers.h"
#include "common/status/status_macros.h"

namespace capstan::cli {
namespace {

using Row = std::vector<std::string>;

constexpr char kSeparators[] = {',', '\t', ';', '|'};

absl::StatusOr<Row> SplitLine(const std::string& text, char separator) {
  std::string scratch;
  DelimitedLine line(text, separator, /*quotes=*/true, &scratch);
  Row row;
  absl::string_view column;
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, line.Next(&column));
    if (!more) return row;
    row.emplace_back(column);
  }
}

// Returns the columns of all lines. Empty: the lines do not have the same number of columns, or
// have only one.
std::vector<Row> RowsWith(const std::vector<std::string>& lines, char separator) {
  std::vector<Row> rows;
  for (const std::string& line : lines) {
    absl::StatusOr<Row> row = SplitLine(line, separator);
    if (!row.ok() || row->size() < 2 || (!rows.empty() && row->size() != rows[0].size())) {
      return {};
    }
    rows.push_back(*std::move(row));
  }
  return rows;
}

absl::Status NoSeparator(const std::vector<std::string>& lines) {
  std::vector<std::string> found;
  for (const char separator : kSeparators) {
    size_t least = std::string::npos, most = 0;
    for (const std::string& line : lines) {
      const size_t columns =
          1 + static_cast<size_t>(std::count(line.begin(), line.end(), separator));
      least = std::min(least, columns);
      most = std::max(most, columns);
    }
    found.push_back(absl::StrCat(Quoted(absl::string_view(&separator, 1)), " gives ", least,
                                 least == most ? "" : absl::StrCat(" to ", most)));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "found no separator that cuts its first ", lines.size(),
      " lines into the same number of columns, two at least: ", absl::StrJoin(found, ", ")));
}

bool IsNumber(const std::string& text) {
  float value = 0;
  return ParseFloat(text, &value) == NumberError::kNone;
}

bool HasHeader(const std::vector<Row>& rows) {
  if (rows.size() < 2) return false;
  bool any_number = false;
  bool repeated = false;
  for (size_t c = 0; c < rows[0].size(); ++c) {
    bool all_numbers = true;
    for (size_t r = 1; r < rows.size(); ++r) {
      const bool number = IsNumber(rows[r][c]);
      any_number = any_number || number;
      all_numbers = all_numbers && (number || rows[r][c].empty());
      repeated = repeated || rows[r][c] == rows[0][c];
    }
    const std::string& first = rows[0][c];
    if (all_numbers && !first.empty() && !IsNumber(first)) return true;
  }
  return !any_number && !repeated;
}

void Count(const std::string& text, ColumnSample* column, double* squares) {
  if (text.empty()) {
    ++column->empty;
    return;
  }
  const auto found = column->values.find(text);
  if (found != column->values.end()) {
    ++found->second;
  } else if (column->values.size() < ColumnSample::kValuesMax) {
    column->values[text] = 1;
  }
  float value = 0;
  if (ParseFloat(text, &value) != NumberError::kNone) {
    ++column->texts;
    return;
  }
  column->least = column->numbers == 0 ? value : std::min<double>(column->least, value);
  column->largest = column->numbers == 0 ? value : std::max<double>(column->largest, value);
  ++column->numbers;
  // Welford's algorithm computes the sum of squares around the mean.
  const double step = value - column->mean;
  column->mean += step / static_cast<double>(column->numbers);
  *squares += step * (value - column->mean);
}

}  // namespace

absl::StatusOr<TableSample> SampleTable(const std::vector<std::string>& lines) {
  if (lines.empty()) return absl::InvalidArgumentError("has no line, expected at least one");
  std::vector<Row> rows;
  TableSample sample;
  for (const char separator : kSeparators) {
    std::vector<Row> cut = RowsWith(lines, separator);
    if (cut.empty() || (!rows.empty() && cut[0].size() <= rows[0].size())) continue;
    rows = std::move(cut);
    sample.separator = separator;
  }
  if (rows.empty()) return NoSeparator(lines);
  sample.header = HasHeader(rows);
  const size_t first = sample.header ? 1 : 0;
  sample.rows = static_cast<int64_t>(rows.size() - first);
  sample.columns.resize(rows[0].size());
  for (size_t c = 0; c < rows[0].size(); ++c) {
    ColumnSample& column = sample.columns[c];
    if (sample.header) column.name = rows[0][c];
    double squares = 0;
    for (size_t r = first; r < rows.size(); ++r) Count(rows[r][c], &column, &squares);
    if (column.numbers > 0) {
      column.deviation = std::sqrt(squares / static_cast<double>(column.numbers));
    }
  }
  return sample;
}

}  // namespace capstan::cli
