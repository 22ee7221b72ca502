// LineParser: the interface of parsers that turn a line of text into examples, one for each format.
//
// Pure but for the batch and a parser's own scratch memory. Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_PARSERS_LINE_PARSER_H_
#define CAPSTAN_COMMON_EXAMPLES_PARSERS_LINE_PARSER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"

namespace capstan {

class LineParser {
 public:
  virtual ~LineParser() = default;

  // Appends the examples of one line, which is given without its end: usually one, or none for a
  // comment or a blank line. `line` may hold any bytes. Allocates nothing but what *batch needs.
  // REQUIRES: batch->dense_columns() == dense_columns(), no open example.
  // Errors (*batch is unchanged): kInvalidArgument  the line is malformed; the message says where,
  //                                                 what was found and what was expected.
  virtual absl::Status Parse(absl::string_view line, ExampleBatch* batch) = 0;

  // Dense columns of each example.
  virtual int64_t dense_columns() const { return 0; }
  // Fields are in [0, field_count()).
  virtual int32_t field_count() const { return 1; }
  // Returns whether the first line of each file is a header, which is not for Parse.
  virtual bool has_header() const { return false; }
  // Errors: kInvalidArgument  the header is not that of the format's options.
  virtual absl::Status CheckHeader(absl::string_view line);
  // 0: Parse needs whole lines. Otherwise it also accepts pieces of about this many bytes, cut at
  // whitespace (LineReader::Options says how).
  virtual int64_t window_bytes() const { return 0; }
};

// A value of the job file for a message: quoted, printable ASCII, cut after 40 bytes.
std::string Quoted(absl::string_view text);

// A part of a data file for a message: "text of 3 bytes". Messages show no data, since they reach
// logs, the scheduler's history and everybody who may look at the job.
std::string Described(absl::string_view text);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_PARSERS_LINE_PARSER_H_
