#include "common/examples/parsers/delimited.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan {

absl::Status DelimitedLine::Wrong(size_t at, absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("column ", taken_ + 1, ", byte ", at + 1, ": ", what));
}

// Returns the column that begins with the quote at position_, and moves position_ behind its last
// quote.
absl::StatusOr<absl::string_view> DelimitedLine::TakeQuoted() {
  const size_t open = position_;
  size_t begin = open + 1;  // The part from here on is not in scratch_ yet.
  bool doubled = false;
  while (true) {
    const size_t quote = line_.find('"', begin);
    if (quote == absl::string_view::npos) {
      return Wrong(open, "the quote is not closed, expected a second one on the same line");
    }
    const absl::string_view part = line_.substr(begin, quote - begin);
    position_ = quote + 1;
    if (position_ == line_.size() || line_[position_] != '"') {
      if (!doubled) return part;
      scratch_.append(part.data(), part.size());
      return absl::string_view(scratch_);
    }
    if (!doubled) scratch_.clear();
    doubled = true;
    scratch_.append(part.data(), part.size());
    scratch_.push_back('"');
    begin = quote + 2;
  }
}

absl::StatusOr<bool> DelimitedLine::Next(absl::string_view* column) {
  if (ended_) return false;
  if (quotes_ && position_ < line_.size() && line_[position_] == '"') {
    CAPSTAN_ASSIGN_OR_RETURN(*column, TakeQuoted());
    if (position_ < line_.size() && line_[position_] != separator_) {
      return Wrong(position_, "text behind the closing quote, expected a separator");
    }
  } else {
    const size_t end = std::min(line_.find(separator_, position_), line_.size());
    *column = line_.substr(position_, end - position_);
    const size_t quote = quotes_ ? column->find('"') : absl::string_view::npos;
    if (quote != absl::string_view::npos) {
      return Wrong(position_ + quote, "a quote in an unquoted column, expected \"\" in quotes");
    }
    position_ = end;
  }
  ended_ = position_ == line_.size();
  ++position_;  // It moves behind the separator.
  ++taken_;
  return true;
}

}  // namespace capstan
