#include "common/examples/columns_parser.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/examples/feature_hash.h"
#include "common/examples/numbers.h"
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
  return absl::InvalidArgumentError(absl::StrCat(NameOf(column, number), ": ", Quoted(text), " ",
                                                 ToString(error), ", expected ", expected));
}

absl::Status CheckOptions(const ColumnsParser::Options& options) {
  int labels = 0;
  bool used = false;
  for (size_t i = 0; i < options.columns.size(); ++i) {
    const ColumnsParser::Column& column = options.columns[i];
    if (column.kind == Kind::kLabel) ++labels;
    used = used || (column.kind != Kind::kSkip && column.kind != Kind::kLabel);
    if (!column.missing.has_value()) continue;
    const std::string name = NameOf(column, static_cast<int64_t>(i) + 1);
    if (column.kind != Kind::kDense) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": has a default for missing values, expected one for dense columns only"));
    }
    if (!std::isfinite(*column.missing)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": the default for missing values is ",
                                                     *column.missing, ", expected a finite one"));
    }
  }
  if (!used) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns: none of ", options.columns.size(),
                     " is a feature, expected at least one dense, category or id column"));
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

}  // namespace

absl::StatusOr<std::unique_ptr<ColumnsParser>> ColumnsParser::Create(Options options) {
  CAPSTAN_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<ColumnsParser>(new ColumnsParser(std::move(options)));
}

ColumnsParser::ColumnsParser(Options options) : options_(std::move(options)) {
  for (const Column& column : options_.columns) {
    if (column.kind == Kind::kDense) ++dense_columns_;
    if (column.kind == Kind::kCategory || column.kind == Kind::kId) ++field_count_;
  }
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
      error = ParseFloat(text, label);
      break;
    case Kind::kDense:
      if (text.empty() && column.missing.has_value()) {
        value = *column.missing;
      } else {
        error = ParseFloat(text, &value);
      }
      batch->AddDense(value);
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
  }
  if (error == NumberError::kNone) return absl::OkStatus();
  return WrongNumber(column, number, text, error,
                     column.kind == Kind::kId ? "a whole number below 2^64" : "a finite number");
}

// Takes what is left of the line.
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
                                                     Quoted(found), ", expected ",
                                                     Quoted(column.name)));
    }
  }
  CAPSTAN_ASSIGN_OR_RETURN(const bool more, line.Next(&found));
  return more ? WrongCount(line) : absl::OkStatus();
}

}  // namespace capstan
