// ColumnsParser: parses lines of CSV or TSV. The options say how each column is used.
//
// Columns that give keys (kCategory, kId, kBucket) are the fields, counted from 0 in their order;
// their values are 1. An empty column of these gives no key. Dense columns keep their order.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_PARSERS_COLUMNS_PARSER_H_
#define CAPSTAN_COMMON_EXAMPLES_PARSERS_COLUMNS_PARSER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"
#include "common/examples/parsers/delimited.h"
#include "common/examples/parsers/line_parser.h"

namespace capstan {

class ColumnsParser final : public LineParser {
 public:
  enum class Kind {
    kSkip,
    kLabel,     // A finite number, or a name. Without such a column all labels are 0.
    kDense,     // A finite number.
    kCategory,  // Any bytes; the key is HashFeature(field, bytes).
    kId,        // A decimal number of 64 bits; it is the key itself.
    kBucket,    // A finite number; the key is HashFeature(field, number of its bucket).
  };
  struct Column {
    Kind kind = Kind::kSkip;
    std::string name;  // Used in messages, and compared with the header if there is one.
    std::optional<float> missing;  // kDense: the value of an empty column. None: it is an error.
    // kLabel, at most one of both: the names whose label is 1 (all others have 0), or the names of
    // the labels 0, 1, ...
    std::vector<std::string> positive = {};
    std::vector<std::string> classes = {};
    // kDense: (f(x) - subtract) / divide, computed in double; f is the identity, or
    // sign(x) ln(1 + |x|).
    bool log1p = false;
    float subtract = 0;  // Finite.
    float divide = 1;    // Finite, not 0.
    // kBucket: ascending. The number of a bucket is the number of boundaries that are <= the value.
    std::vector<float> boundaries = {};
  };
  struct Options {
    std::vector<Column> columns;  // All columns of a line, in order.
    char separator = ',';
    bool quotes = true;         // Quotes as in RFC 4180. False: '"' is a character like others.
    bool header = false;        // The first line of each file holds names.
    uint64_t hash_buckets = 0;  // Keys of kCategory are folded into it. 0: full 64 bits.
  };

  // Errors: kInvalidArgument  no column that is a feature, more than one label, an option for a
  //                           column of another kind or out of its range, a separator that is a
  //                           quote or a line end.
  static absl::StatusOr<std::unique_ptr<ColumnsParser>> Create(Options options);

  // Errors (*batch is unchanged; the message gives the column, counted from 1, and its name):
  //   kInvalidArgument  another number of columns; wrong quotes; a column that is not of its kind.
  absl::Status Parse(absl::string_view line, ExampleBatch* batch) override;

  int64_t dense_columns() const override { return dense_columns_; }
  int32_t field_count() const override { return field_count_; }
  bool has_header() const override { return options_.header; }
  // Errors: kInvalidArgument  another number of columns, or a name that is not the options'.
  absl::Status CheckHeader(absl::string_view line) override;

 private:
  explicit ColumnsParser(Options options);
  absl::Status ParseColumns(absl::string_view line, ExampleBatch* batch, float* label);
  absl::Status ParseLabel(const Column& column, int64_t number, absl::string_view text,
                          float* label) const;
  absl::Status ParseColumn(const Column& column, int64_t number, absl::string_view text,
                           ExampleBatch* batch, int32_t* field, float* label) const;
  absl::Status WrongCount(DelimitedLine& line) const;

  const Options options_;
  int64_t dense_columns_ = 0;
  int32_t field_count_ = 0;
  std::string scratch_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_PARSERS_COLUMNS_PARSER_H_
