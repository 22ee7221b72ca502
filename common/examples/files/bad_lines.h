// BadLines: counts malformed lines, and reports when there are too many.
//
// A few bad lines in a large log are normal; many mean a wrong format. Good lines are counted, too;
// from 1,000 lines on, and at the end, the share of bad ones must be at most max_bad_fraction. With
// 0, the first bad line fails at once, since no good line can make up for it. One object may serve
// many ranges and files, one after the other.
//
// Thread safety: thread-compatible. Touches the disk only to number the lines of a report.
// Invariants: (1) bad() <= lines(). (2) the first kBadLinesKept bad lines are kept.
#ifndef CAPSTAN_COMMON_EXAMPLES_FILES_BAD_LINES_H_
#define CAPSTAN_COMMON_EXAMPLES_FILES_BAD_LINES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/examples/files/line_position.h"

namespace capstan {

inline constexpr size_t kBadLinesKept = 10;
inline constexpr int64_t kBadLinesJudgedFrom = 1000;  // Lines.

class BadLines {
 public:
  // REQUIRES: 0 <= max_bad_fraction <= 1 (asserted).
  explicit BadLines(double max_bad_fraction);

  // Counts a line. Errors: kDataLoss  too many are bad; the message is that of Report().
  absl::Status AddGood() { return ++lines_ == kBadLinesJudgedFrom ? Judge() : absl::OkStatus(); }
  absl::Status AddBad(const std::string& path, const LinePosition& position,
                      absl::string_view reason);

  // Call it after the last line. Errors: kDataLoss  as above.
  absl::Status Finish() const { return Judge(); }

  int64_t lines() const { return lines_; }
  int64_t bad() const { return bad_; }

  // "2 of 900 lines are malformed (0.222 %), expected at most 0.1 %: a.txt:7: byte 3: ...; ...",
  // with the first 10 by file, number and reason. Reads the files up to those lines.
  std::string Report() const;

 private:
  struct Line {
    std::string path;
    LinePosition position;
    std::string reason;
  };

  absl::Status Judge() const;

  const double max_bad_fraction_;
  int64_t lines_ = 0;
  int64_t bad_ = 0;
  std::vector<Line> kept_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_FILES_BAD_LINES_H_
