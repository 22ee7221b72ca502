// ExampleSource: reads the examples of a range of a file, batch by batch.
//
// It joins a reader of lines, a parser, and a counter of malformed lines:
//
//   FileRange -> LineReader -> LineParser -> ExampleBatch
//                                  '------> BadLines
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_SETS_EXAMPLE_SOURCE_H_
#define CAPSTAN_COMMON_EXAMPLES_SETS_EXAMPLE_SOURCE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"
#include "common/examples/files/bad_lines.h"
#include "common/examples/files/file_ranges.h"
#include "common/examples/files/line_reader.h"
#include "common/examples/parsers/line_parser.h"

namespace capstan {

class ExampleSource {
 public:
  struct Options {
    int64_t line_bytes_max = 16 << 20;
  };

  // `parser` and `bad_lines` outlive the source; they may serve several sources in turn.
  // Errors: those of LineReader::Open.
  static absl::StatusOr<std::unique_ptr<ExampleSource>> Open(const FileRange& range,
                                                             LineParser* parser,
                                                             BadLines* bad_lines,
                                                             const Options& options);

  // Replaces the contents of *batch by the next `count` examples: fewer only at the end of the
  // range, none behind it. Allocates nothing once *batch has grown to its size.
  // REQUIRES: count >= 1.
  // Errors (*batch is empty; call no more):
  //   kDataLoss         too many bad lines; a line that is too long; compressed data that are
  //                     truncated or corrupt; a file that has become shorter.
  //   kInvalidArgument  a header that is not the parser's.
  //   The errors of InputFile::ReadAt and of decompression.
  // The share of bad lines is not judged at the end of the range: call BadLines::Finish once all
  // ranges have been read.
  absl::Status Next(int64_t count, ExampleBatch* batch);

 private:
  ExampleSource(const FileRange& range, LineParser* parser, BadLines* bad_lines);

  absl::Status Fill(int64_t count, ExampleBatch* batch);
  absl::Status ParseLine(absl::string_view line, ExampleBatch* batch);

  const FileRange range_;
  LineParser& parser_;
  BadLines& bad_lines_;
  std::unique_ptr<LineReader> reader_;
  bool header_due_;
  // Examples of the last line beyond the batch that it was read for; from held_begin_ on.
  ExampleBatch held_;
  int64_t held_begin_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_EXAMPLE_SOURCE_H_
