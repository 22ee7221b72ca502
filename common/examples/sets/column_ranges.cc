#include "common/examples/sets/column_ranges.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace capstan {
namespace {

// Columns [begin, end), counted from 0.
struct Places {
  size_t begin = 0, end = 0;
};

std::optional<Places> PlacesOf(const std::string& range) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(range, absl::MaxSplits('-', 1));
  const bool one = range.find('-') == std::string::npos;
  int first = 0, last = 0;
  if (!absl::SimpleAtoi(ends.first, &first) || first < 1) return std::nullopt;
  if (!absl::SimpleAtoi(one ? ends.first : ends.second, &last)) return std::nullopt;
  if (last < first || last > kLineColumnsMax) return std::nullopt;
  return Places{static_cast<size_t>(first - 1), static_cast<size_t>(last)};
}

std::string Quote(const std::string& text) { return absl::StrCat("\"", text, "\""); }

}  // namespace

std::optional<ColumnRangeError> ColumnsOfLine(const v1::Columns& columns,
                                              std::vector<const v1::Column*>* line) {
  line->clear();
  const bool ranges = std::any_of(columns.columns().begin(), columns.columns().end(),
                                  [](const v1::Column& column) { return !column.range().empty(); });
  for (int i = 0; i < columns.columns_size(); ++i) {
    const v1::Column& column = columns.columns(i);
    if (!ranges) {
      line->push_back(&column);
      continue;
    }
    const std::optional<Places> places = PlacesOf(column.range());
    if (!places.has_value()) {
      return ColumnRangeError{i, column.range().empty() ? "nothing" : Quote(column.range()),
                              absl::StrCat("the columns that these are, counted from 1 (at most ",
                                           kLineColumnsMax, "), such as \"4-41\" or \"7\"")};
    }
    if (places->end - places->begin > 1 && !column.name().empty()) {
      return ColumnRangeError{i, Quote(column.range()),
                              absl::StrCat("one column, as its name is ", Quote(column.name()))};
    }
    if (places->end > line->size()) line->resize(places->end);
    for (size_t place = places->begin; place < places->end; ++place) {
      if ((*line)[place] != nullptr) {
        return ColumnRangeError{i, Quote(column.range()),
                                absl::StrCat("columns of no other range: column ", place + 1,
                                             " is in ", Quote((*line)[place]->range()), ", too")};
      }
      (*line)[place] = &column;
    }
  }
  return std::nullopt;
}

}  // namespace capstan
