#include "common/examples/parsers/criteo_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/examples/feature_hash.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kColumns = 1 + kCriteoCounts + kCriteoCategories;
constexpr size_t kCategoryDigitsMax = 16;

absl::Status WrongColumn(int64_t column, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("column ", column + 1, ": found ", Described(found), ", expected ", expected));
}

absl::Status WrongColumnCount(absl::string_view line) {
  return absl::InvalidArgumentError(absl::StrCat("found ",
                                                 1 + std::count(line.begin(), line.end(), '\t'),
                                                 " columns, expected ", kColumns, " between tabs"));
}

// Takes the text up to the next tab off `line`; returns false if the line has ended before.
bool TakeColumn(absl::string_view* line, bool* ended, absl::string_view* column) {
  if (*ended) return false;
  const size_t tab = line->find('\t');
  *ended = tab == absl::string_view::npos;
  *column = line->substr(0, tab);
  line->remove_prefix(*ended ? line->size() : tab + 1);
  return true;
}

absl::Status ParseCount(int64_t column, absl::string_view text, float* value) {
  int64_t count = 0;
  if (!text.empty()) {
    const char* const end = text.data() + text.size();
    const std::from_chars_result read = std::from_chars(text.data(), end, count);
    if (read.ec != std::errc() || read.ptr != end) {
      return WrongColumn(column, text, "a whole number of 64 bits, or nothing");
    }
  }
  *value = std::log1p(static_cast<float>(std::max<int64_t>(count, 0)));
  return absl::OkStatus();
}

bool IsCategory(absl::string_view text) {
  return text.size() <= kCategoryDigitsMax &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

}  // namespace

absl::Status CriteoParser::ParseColumns(absl::string_view line, ExampleBatch* batch,
                                        float* label) const {
  const absl::string_view whole = line;
  bool ended = false;
  absl::string_view text;
  int64_t column = 0;
  if (!TakeColumn(&line, &ended, &text)) return WrongColumnCount(whole);
  if (text != "0" && text != "1") return WrongColumn(column, text, "the label 0 or 1");
  *label = text == "1" ? 1.0f : 0.0f;
  for (++column; column <= kCriteoCounts; ++column) {
    if (!TakeColumn(&line, &ended, &text)) return WrongColumnCount(whole);
    float value = 0;
    CAPSTAN_RETURN_IF_ERROR(ParseCount(column, text, &value));
    batch->AddDense(value);
  }
  for (int32_t field = 0; field < kCriteoCategories; ++field, ++column) {
    if (!TakeColumn(&line, &ended, &text)) return WrongColumnCount(whole);
    if (!IsCategory(text)) {
      return WrongColumn(column, text, "1 to 16 hexadecimal digits, or nothing");
    }
    if (text.empty()) continue;
    batch->AddFeature(FoldKey(HashFeature(field, text), options_.hash_buckets), 1.0f, field);
  }
  return ended ? absl::OkStatus() : WrongColumnCount(whole);
}

absl::Status CriteoParser::Parse(absl::string_view line, ExampleBatch* batch) {
  float label;
  if (absl::Status status = ParseColumns(line, batch, &label); !status.ok()) {
    batch->Abandon();
    return status;
  }
  batch->Finish(label);
  return absl::OkStatus();
}

}  // namespace capstan
