// LineReader: reads the lines of a range of a file, one at a time, in bounded memory.
//
// A line belongs to the range that holds its first byte. It is read to its end, even behind the end
// of the range; a range that begins within a line skips the rest of that line. Ranges that cover a
// file therefore give each of its lines once, however they are cut.
//
//   file    aaa \n bbbbbbbb \n cc \n d        (the last line may lack its newline)
//   ranges  |---------|------------|-|
//   lines    aaa bbbbbbbb     cc d
//
// Lines end with "\n" or "\r\n"; other bytes are content, NUL too. A UTF-8 byte order mark at the
// begin of a file is dropped; the first line still belongs to the range that holds the file's first
// byte, which is the mark's.
//
// Windows: text may be one endless line. With window_bytes = W a cut is also made at the first
// whitespace at or after each multiple of W above 0; several multiples without whitespace between
// them share one cut. These cuts do not depend on the ranges either.
//
// Memory: about line_bytes_max + read_bytes at most, and the memory of decompression.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_FILES_LINE_READER_H_
#define CAPSTAN_COMMON_EXAMPLES_FILES_LINE_READER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/examples/files/file_ranges.h"
#include "common/examples/files/line_position.h"
#include "common/examples/streams/byte_stream.h"

namespace capstan {

class LineReader {
 public:
  struct Options {
    int64_t line_bytes_max = 16 << 20;  // >= 1, without the line's end.
    int64_t window_bytes = 0;           // >= 0. 0: lines are cut at newlines only.
    int64_t read_bytes = 256 * 1024;    // >= 1. Bytes of one read.
  };

  // REQUIRES: options in range (asserted).
  // Errors: those of OpenStream.
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(FileRange range, const Options& options);

  // Sets *line, valid until the next call, to the next line without its end; false: none is left.
  // Errors (all later calls return the same):
  //   kDataLoss  a line of more than line_bytes_max bytes; compressed data that are truncated or
  //              corrupt; a file that has become shorter.
  //   The errors of InputFile::ReadAt and of decompression.
  // Every message begins with the path; that of a long line with path:number.
  absl::StatusOr<bool> Next(absl::string_view* line);

  // Position of the line that Next returned last.
  const LinePosition& position() const { return position_; }
  // First byte of that line in the file's contents.
  int64_t line_begin() const { return line_begin_; }

 private:
  LineReader(FileRange range, const Options& options);

  absl::StatusOr<bool> FindNext(absl::string_view* line);
  absl::Status GoToFirstLine();
  absl::Status SkipByteOrderMark();
  absl::Status Fill();
  absl::Status Take(size_t cut, absl::string_view* line);
  size_t FindCut(size_t from);
  absl::Status TooLong() const;
  int64_t OffsetOf(size_t place) const { return buffer_offset_ + static_cast<int64_t>(place); }

  const FileRange range_;
  const Options options_;
  const bool compressed_;
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> buffer_;
  size_t next_ = 0;            // Place in buffer_ where the next line begins.
  size_t filled_ = 0;          // Bytes of buffer_.
  int64_t buffer_offset_ = 0;  // Offset of buffer_[0] in the contents.
  // From this offset on, a multiple of the window, the first whitespace is a cut.
  int64_t window_offset_ = std::numeric_limits<int64_t>::max();
  // Bytes of the byte order mark before the first line; 0 once that line was returned.
  int64_t mark_bytes_ = 0;
  bool stream_ended_ = false;
  bool started_ = false;
  LinePosition next_position_;  // Position of the next line.
  LinePosition position_;
  int64_t line_begin_ = 0;
  absl::Status failed_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_FILES_LINE_READER_H_
