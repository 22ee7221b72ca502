#include "common/examples/files/bad_lines.h"

#include <cassert>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace capstan {

BadLines::BadLines(double max_bad_fraction) : max_bad_fraction_(max_bad_fraction) {
  assert(max_bad_fraction >= 0 && max_bad_fraction <= 1);
}

absl::Status BadLines::AddBad(const std::string& path, const LinePosition& position,
                              absl::string_view reason) {
  ++lines_;
  ++bad_;
  if (kept_.size() < kBadLinesKept) kept_.push_back({path, position, std::string(reason)});
  const bool judged = lines_ >= kBadLinesJudgedFrom || max_bad_fraction_ == 0;
  return judged ? Judge() : absl::OkStatus();
}

absl::Status BadLines::Judge() const {
  const double most = max_bad_fraction_ * static_cast<double>(lines_);
  if (static_cast<double>(bad_) <= most) return absl::OkStatus();
  return absl::DataLossError(Report());
}

std::string BadLines::Report() const {
  const double percent =
      lines_ == 0 ? 0 : 100 * static_cast<double>(bad_) / static_cast<double>(lines_);
  std::string report =
      absl::StrFormat("%d of %d lines are malformed (%.3g %%), expected at most %.3g %%", bad_,
                      lines_, percent, 100 * max_bad_fraction_);
  absl::StatusOr<int64_t> newlines = 0;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const Line& line = kept_[i];
    // Lines of one range count from one base, which may be far into a large file.
    const bool known =
        i > 0 && kept_[i - 1].path == line.path && kept_[i - 1].position.base == line.position.base;
    if (!known) newlines = CountNewlines(line.path, line.position.base);
    absl::StrAppend(&report, i == 0 ? ": " : "; ", Locate(line.path, line.position, newlines), ": ",
                    line.reason);
  }
  if (static_cast<size_t>(bad_) > kept_.size()) absl::StrAppend(&report, "; ...");
  return report;
}

}  // namespace capstan
