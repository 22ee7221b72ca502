#include "common/sparse_models/example_check.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan {

absl::Status CheckDenseColumns(absl::string_view model, const ExampleBatch& examples,
                               int64_t dense_columns) {
  if (examples.dense_columns() == dense_columns) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(model, ": examples have ", examples.dense_columns(),
                   " dense columns, expected the model's ", dense_columns));
}

absl::Status CheckFields(absl::string_view model, const ExampleBatch& examples, int32_t fields) {
  for (size_t at = 0; at < examples.fields().size(); ++at) {
    const int32_t field = examples.fields()[at];
    if (field >= 0 && field < fields) continue;
    int64_t example = 0;
    while (examples.row_begin()[static_cast<size_t>(example) + 1] <= static_cast<int64_t>(at)) {
      ++example;
    }
    return absl::InvalidArgumentError(absl::StrCat(model, ": example ", example,
                                                   " has a key of field ", field,
                                                   ", expected one of [0, ", fields, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckOneKeyAField(absl::string_view model, const ExampleBatch& examples,
                               int32_t fields) {
  std::vector<int64_t> last(static_cast<size_t>(fields), -1);  // The last example of each field.
  for (int64_t i = 0; i < examples.count(); ++i) {
    for (const int32_t field : examples.example(i).fields) {
      int64_t& of_field = last[static_cast<size_t>(field)];
      if (of_field == i) {
        return absl::InvalidArgumentError(absl::StrCat(
            model, ": example ", i, " has two keys of field ", field, ", expected at most one"));
      }
      of_field = i;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOption(absl::string_view model, absl::string_view option, double value,
                         double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // This is false for NaN.
  return absl::InvalidArgumentError(
      absl::StrCat(model, ": ", option, " is ", value, ", expected ", low, " to ", high));
}

absl::Status CheckWidths(absl::string_view model, absl::string_view option,
                         const std::vector<int64_t>& widths) {
  CAPSTAN_RETURN_IF_ERROR(CheckOption(model, absl::StrCat("number of ", option),
                                      static_cast<double>(widths.size()), 0,
                                      static_cast<double>(kMlpLayersMax)));
  for (const int64_t width : widths) {
    CAPSTAN_RETURN_IF_ERROR(CheckOption(model, option, static_cast<double>(width), 1,
                                        static_cast<double>(kMlpWidthMax)));
  }
  return absl::OkStatus();
}

}  // namespace capstan
