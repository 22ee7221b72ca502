// RangeReader: reads all examples of a range of a file at once, with one parser for many ranges.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_SETS_RANGE_READER_H_
#define CAPSTAN_COMMON_EXAMPLES_SETS_RANGE_READER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/examples/example_batch.h"
#include "common/examples/files/bad_lines.h"
#include "common/examples/files/file_ranges.h"
#include "common/examples/parsers/line_parser.h"
#include "common/types/progress.h"

namespace capstan {

class RangeReader {
 public:
  // `progress` gets "examples read"; may be null.
  RangeReader(std::unique_ptr<LineParser> parser, double max_bad_fraction, Progress progress)
      : parser_(std::move(parser)),
        bad_lines_(max_bad_fraction),
        progress_(std::move(progress)),
        next_(dense_columns()) {}

  int64_t dense_columns() const { return parser_->dense_columns(); }
  int32_t field_count() const { return parser_->field_count(); }

  // Appends the range's examples to *batch, which has dense_columns().
  // Errors: those of ExampleSource; kResourceExhausted  *batch takes more than 3/4 of this
  //         machine's memory.
  absl::Status Append(const FileRange& range, ExampleBatch* batch);

  // Call it once all ranges were read. Errors: kDataLoss  too many malformed lines.
  absl::Status Finish() const { return bad_lines_.Finish(); }

 private:
  const std::unique_ptr<LineParser> parser_;
  BadLines bad_lines_;
  const Progress progress_;
  ExampleBatch next_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_RANGE_READER_H_
