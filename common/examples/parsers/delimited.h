// DelimitedLine: reads the columns of a line of CSV (RFC 4180) or TSV, one at a time.
//
// With quotes, a column that begins with '"' ends at the next single '"', and '""' stands for one
// '"' in it. A quoted line break is not supported: a line of the file is a line here, so that a
// file can be read from the middle. Blanks are part of a column, as RFC 4180 says.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_PARSERS_DELIMITED_H_
#define CAPSTAN_COMMON_EXAMPLES_PARSERS_DELIMITED_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

class DelimitedLine {
 public:
  // Columns with "" are built in `*scratch`; a caller that reuses it saves allocations.
  // REQUIRES: separator is not '"'.
  DelimitedLine(absl::string_view line, char separator, bool quotes, std::string* scratch)
      : line_(line), separator_(separator), quotes_(quotes), scratch_(*scratch) {}

  // Reads the next column; false: there is none. An empty line has one column, which is empty.
  // *column is valid until the next call.
  // Errors: kInvalidArgument  a '"' within an unquoted column; a quote that is not closed, or that
  //                           is followed by something else than a separator.
  absl::StatusOr<bool> Next(absl::string_view* column);

  int64_t taken() const { return taken_; }  // Columns read so far.

 private:
  absl::StatusOr<absl::string_view> TakeQuoted();
  absl::Status Wrong(size_t at, absl::string_view what) const;

  const absl::string_view line_;
  const char separator_;
  const bool quotes_;
  std::string& scratch_;
  size_t position_ = 0;  // Position of the next column.
  bool ended_ = false;
  int64_t taken_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_PARSERS_DELIMITED_H_
