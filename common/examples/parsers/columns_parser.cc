#include "common/examples/parsers/columns_parser.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/examples/feature_hash.h"
#include "common/examples/parsers/numbers.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

using Kind = ColumnsParser::Kind;

std::string NameOf(const ColumnsParser::Column& column, int64_t number) {
  return column.name.empty() ? absl::StrCat("column ", number)
                             : absl::StrCat("column ", number, " (", column.name, ")");
}

absl::Status WrongNumber(const ColumnsParser::Column& column, int64_t number,
                         absl::string_view text, NumberError error, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(NameOf(column, number), ": ", Described(text), " ",
                                                 ToString(error), ", expected ", expected));
}

bool IsField(Kind kind) {
  return kind == Kind::kCategory || kind == Kind::kId || kind == Kind::kBucket;
}

template <typename T>
bool AllDiffer(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

absl::Status CheckLabel(const ColumnsParser::Column& column, const std::string& name) {
  const bool named = !column.positive.empty() || !column.classes.empty();
  if (named && column.kind != Kind::kLabel) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has names of labels, expected them for a label only"));
  }
  if (!column.positive.empty() && !column.classes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has both positive values and classes, expected one of them"));
  }
  if (!AllDiffer(column.classes) || !AllDiffer(column.positive)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": a name of a label stands twice, expected each once"));
  }
  return absl::OkStatus();
}

absl::Status CheckDense(const ColumnsParser::Column& column, const std::string& name) {
  const bool dense = column.kind == Kind::kDense;
  if (column.missing.has_value() && !dense) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": has a default for missing values, expected one for dense columns only"));
  }
  if (column.missing.has_value() && !std::isfinite(*column.missing)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the default for missing values is ",
                                                   *column.missing, ", expected a finite one"));
  }
  if ((column.log1p || column.subtract != 0 || column.divide != 1) && !dense) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is scaled, expected that for dense columns only"));
  }
  if (!std::isfinite(column.subtract) || !std::isfinite(column.divide) || column.divide == 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": subtracts ", column.subtract,
                                                   " and divides by ", column.divide,
                                                   ", expected finite numbers, the second not 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckBucket(const ColumnsParser::Column& column, const std::string& name) {
  const std::vector<float>& boundaries = column.boundaries;
  if ((column.kind == Kind::kBucket) == boundaries.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has ", boundaries.size(),
                                                   " boundaries, expected at least one for "
                                                   "buckets and none for other columns"));
  }
  for (size_t i = 0; i < boundaries.size(); ++i) {
    if (std::isfinite(boundaries[i]) && (i == 0 || boundaries[i - 1] < boundaries[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": boundary ", i + 1, " is ",
                                                   boundaries[i],
                                                   ", expected finite numbers that ascend"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const ColumnsParser::Options& options) {
  int labels = 0;
  bool used = false;
  for (size_t i = 0; i < options.columns.size(); ++i) {
    const ColumnsParser::Column& column = options.columns[i];
    if (column.kind == Kind::kLabel) ++labels;
    used = used || column.kind == Kind::kDense || IsField(column.kind);
    const std::string name = NameOf(column, static_cast<int64_t>(i) + 1);
    CAPSTAN_RETURN_IF_ERROR(CheckLabel(column, name));
    CAPSTAN_RETURN_IF_ERROR(CheckDense(column, name));
    CAPSTAN_RETURN_IF_ERROR(CheckBucket(column, name));
  }
  if (!used) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns: none of ", options.columns.size(),
                     " is a feature, expected at least one dense, category, id or bucket column"));
  }
  if (labels > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns: ", labels, " labels, expected at most one"));
  }
  const char separator = options.separator;
  if (separator == '\n' || separator == '\r' || (options.quotes && separator == '"')) {
    return absl::InvalidArgumentError(
        absl::StrCat("the separator is ", Quoted(absl::string_view(&separator, 1)),
                     ", expected a character that is no quote and no line end"));
  }
  return absl::OkStatus();
}

// Applies the transformation of a dense column to its number.
float Transformed(const ColumnsParser::Column& column, float value) {
  if (!column.log1p && column.subtract == 0 && column.divide == 1) return value;
  double x = value;
  if (column.log1p) x = std::copysign(std::log1p(std::abs(x)), x);
  return static_cast<float>((x - double{column.subtract}) / double{column.divide});
}

size_t BucketOf(const std::vector<float>& boundaries, float value) {
  return static_cast<size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), value) -
                             boundaries.begin());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ColumnsParser>> ColumnsParser::Create(Options options) {
  CAPSTAN_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<ColumnsParser>(new ColumnsParser(std::move(options)));
}

ColumnsParser::ColumnsParser(Options options) : options_(std::move(options)) {
  for (const Column& column : options_.columns) {
    if (column.kind == Kind::kDense) ++dense_columns_;
    if (IsField(column.kind)) ++field_count_;
  }
}

absl::Status ColumnsParser::ParseLabel(const Column& column, int64_t number, absl::string_view text,
                                       float* label) const {
  if (!column.positive.empty()) {
    const bool positive =
        std::find(column.positive.begin(), column.positive.end(), text) != column.positive.end();
    *label = positive ? 1.0f : 0.0f;
    return absl::OkStatus();
  }
  if (!column.classes.empty()) {
    const auto found = std::find(column.classes.begin(), column.classes.end(), text);
    *label = static_cast<float>(found - column.classes.begin());
    if (found != column.classes.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(NameOf(column, number), ": ", Described(text),
                                                   " is no class, expected one of the ",
                                                   column.classes.size(), " of label.classes"));
  }
  const NumberError error = ParseFloat(text, label);
  if (error == NumberError::kNone) return absl::OkStatus();
  return WrongNumber(column, number, text, error,
                     "a finite number (a name is explained by label.positive or label.classes)");
}

absl::Status ColumnsParser::ParseColumn(const Column& column, int64_t number,
                                        absl::string_view text, ExampleBatch* batch, int32_t* field,
                                        float* label) const {
  float value = 0;
  uint64_t id = 0;
  NumberError error = NumberError::kNone;
  switch (column.kind) {
    case Kind::kSkip:
      break;
    case Kind::kLabel:
      return ParseLabel(column, number, text, label);
    case Kind::kDense:
      if (text.empty() && column.missing.has_value()) {
        value = *column.missing;
      } else {
        error = ParseFloat(text, &value);
      }
      batch->AddDense(Transformed(column, value));
      break;
    case Kind::kCategory:
      if (!text.empty()) {
        const uint64_t key = FoldKey(HashFeature(*field, text), options_.hash_buckets);
        batch->AddFeature(key, 1.0f, *field);
      }
      ++*field;
      break;
    case Kind::kId:
      if (!text.empty()) {
        error = ParseUint64(text, &id);
        batch->AddFeature(id, 1.0f, *field);
      }
      ++*field;
      break;
    case Kind::kBucket:
      if (!text.empty()) {
        error = ParseFloat(text, &value);
        const absl::AlphaNum bucket(BucketOf(column.boundaries, value));
        const uint64_t key = HashFeature(*field, bucket.Piece());
        batch->AddFeature(FoldKey(key, options_.hash_buckets), 1.0f, *field);
      }
      ++*field;
      break;
  }
  if (error == NumberError::kNone) return absl::OkStatus();
  return WrongNumber(column, number, text, error,
                     column.kind == Kind::kId ? "a whole number below 2^64" : "a finite number");
}

// Reads the rest of the line to count its columns.
absl::Status ColumnsParser::WrongCount(DelimitedLine& line) const {
  absl::string_view unused;
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, line.Next(&unused));
    if (!more) break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found ", line.taken(), " columns, expected ", options_.columns.size(), " with ",
                   Quoted(absl::string_view(&options_.separator, 1)), " between them"));
}

absl::Status ColumnsParser::ParseColumns(absl::string_view text, ExampleBatch* batch,
                                         float* label) {
  DelimitedLine line(text, options_.separator, options_.quotes, &scratch_);
  int32_t field = 0;
  absl::string_view found;
  for (const Column& column : options_.columns) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, line.Next(&found));
    if (!more) return WrongCount(line);
    CAPSTAN_RETURN_IF_ERROR(ParseColumn(column, line.taken(), found, batch, &field, label));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const bool more, line.Next(&found));
  return more ? WrongCount(line) : absl::OkStatus();
}

absl::Status ColumnsParser::Parse(absl::string_view line, ExampleBatch* batch) {
  float label = 0;
  if (absl::Status status = ParseColumns(line, batch, &label); !status.ok()) {
    batch->Abandon();
    return status;
  }
  batch->Finish(label);
  return absl::OkStatus();
}

absl::Status ColumnsParser::CheckHeader(absl::string_view text) {
  DelimitedLine line(text, options_.separator, options_.quotes, &scratch_);
  absl::string_view found;
  for (const Column& column : options_.columns) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, line.Next(&found));
    if (!more) return WrongCount(line);
    if (!column.name.empty() && found != column.name) {
      return absl::InvalidArgumentError(absl::StrCat("the header's column ", line.taken(), " is ",
                                                     Described(found), ", expected ",
                                                     Quoted(column.name)));
    }
  }
  CAPSTAN_ASSIGN_OR_RETURN(const bool more, line.Next(&found));
  return more ? WrongCount(line) : absl::OkStatus();
}

}  // namespace capstan
