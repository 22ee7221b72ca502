// Checks that a batch fits a model, and an option its range. Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_EXAMPLE_CHECK_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_EXAMPLE_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"

namespace capstan {

inline constexpr int32_t kFieldsMax = 65'535;
inline constexpr int64_t kDenseColumnsMax = 65'535;
inline constexpr int64_t kRankMax = 4095;  // A weight more makes kSparseDimMax, 4,096 columns.
inline constexpr int64_t kMlpWidthMax = 65'536;  // Units of a layer.
inline constexpr int64_t kMlpLayersMax = 16;

// Errors: kInvalidArgument  the batch has another number of dense columns.
absl::Status CheckDenseColumns(absl::string_view model, const ExampleBatch& examples,
                               int64_t dense_columns);

// Errors: kInvalidArgument  a key is of a field outside [0, fields).
absl::Status CheckFields(absl::string_view model, const ExampleBatch& examples, int32_t fields);

// Errors: kInvalidArgument  an example has two keys of one field. REQUIRES: CheckFields passed.
absl::Status CheckOneKeyAField(absl::string_view model, const ExampleBatch& examples,
                               int32_t fields);

// Errors: kInvalidArgument  value is outside [low, high], or NaN.
absl::Status CheckOption(absl::string_view model, absl::string_view option, double value,
                         double low, double high);

// Errors: kInvalidArgument  more than kMlpLayersMax layers, or a width outside [1, kMlpWidthMax].
absl::Status CheckWidths(absl::string_view model, absl::string_view option,
                         const std::vector<int64_t>& widths);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_EXAMPLE_CHECK_H_
