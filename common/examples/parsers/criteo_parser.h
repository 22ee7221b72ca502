// CriteoParser: parses lines of Criteo's click logs: a label, 13 counts and 26 categories.
//
//   1 <tab> count, 13 times <tab> 8 hexadecimal digits, 26 times
//
// Counts become 13 dense columns, log(1 + count); a missing or negative count becomes 0, as in
// DLRM. The category of column f of the 26 becomes HashFeature(f, its digits as they stand) with
// value 1 and field f; a missing one gives no key. The label is 0 or 1.
// Reference: https://ailab.criteo.com/ressources/ (Kaggle Display Advertising, Terabyte logs).
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_PARSERS_CRITEO_PARSER_H_
#define CAPSTAN_COMMON_EXAMPLES_PARSERS_CRITEO_PARSER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"
#include "common/examples/parsers/line_parser.h"

namespace capstan {

inline constexpr int64_t kCriteoCounts = 13;
inline constexpr int32_t kCriteoCategories = 26;

class CriteoParser final : public LineParser {
 public:
  struct Options {
    uint64_t hash_buckets = 0;  // Keys are folded into [0, hash_buckets). 0: full 64 bits.
  };
  explicit CriteoParser(const Options& options) : options_(options) {}

  // Errors (*batch is unchanged; the message gives the column, counted from 1):
  //   kInvalidArgument  not 40 columns; a label that is not 0 or 1; a count that is no whole number
  //                     of 64 bits; a category that is not 1 to 16 hexadecimal digits.
  absl::Status Parse(absl::string_view line, ExampleBatch* batch) override;

  int64_t dense_columns() const override { return kCriteoCounts; }
  int32_t field_count() const override { return kCriteoCategories; }

 private:
  absl::Status ParseColumns(absl::string_view line, ExampleBatch* batch, float* label) const;

  const Options options_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_PARSERS_CRITEO_PARSER_H_
