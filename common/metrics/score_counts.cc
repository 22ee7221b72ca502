#include "common/metrics/score_counts.h"

#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

// Returns a bin that ascends with the score; -0 and 0 share one.
uint16_t BinOfNumber(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
  constexpr uint32_t kSign = 0x80000000u;
  return static_cast<uint16_t>((bits & kSign ? ~bits : bits | kSign) >> 16);
}

// Maps every NaN to the same one: a NaN whose set bits are all in the lower half would look like
// infinity.
uint16_t BinOf(float score) {
  return BinOfNumber(std::isnan(score) ? std::numeric_limits<float>::quiet_NaN() : score);
}

absl::Status CheckCount(const char* what, int64_t bin, int64_t count) {
  if (count >= 0 && count <= ScoreCounts::kCountMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("score bin ", bin, ": ", count, " ", what,
                                                 ", expected 0 to ", ScoreCounts::kCountMax));
}

}  // namespace

void ScoreCounts::Add(float score, bool clicked) {
  Counts& counts = bins_[BinOf(score)];
  ++(clicked ? counts.clicks : counts.non_clicks);
}

void ScoreCounts::Merge(const ScoreCounts& other) {
  for (const auto& [bin, counts] : other.bins_) {
    Counts& sum = bins_[bin];
    sum.non_clicks += counts.non_clicks;
    sum.clicks += counts.clicks;
  }
}

absl::Status ScoreCounts::Append(int64_t bin, const Counts& counts) {
  const int64_t first = bins_.empty() ? 0 : bins_.rbegin()->first + 1;
  if (bin < first || bin >= kBinsMax) {
    return absl::InvalidArgumentError(absl::StrCat("score bin ", bin, ", expected one from ", first,
                                                   " to ", kBinsMax - 1,
                                                   " (bins ascend, each once)"));
  }
  if (absl::Status s = CheckCount("non-clicks", bin, counts.non_clicks); !s.ok()) return s;
  if (absl::Status s = CheckCount("clicks", bin, counts.clicks); !s.ok()) return s;
  if (counts == Counts()) {
    return absl::InvalidArgumentError(
        absl::StrCat("score bin ", bin, " has no examples, expected only bins that have"));
  }
  bins_.emplace_hint(bins_.end(), static_cast<uint16_t>(bin), counts);
  return absl::OkStatus();
}

int64_t ScoreCounts::Examples() const {
  int64_t examples = 0;
  for (const auto& [bin, counts] : bins_) examples += counts.non_clicks + counts.clicks;
  return examples;
}

double ScoreCounts::Auc() const {
  if (bins_.contains(BinOf(std::numeric_limits<float>::quiet_NaN()))) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  // Counts twice the pairs in the right order, in doubles, which are exact below 2^53, that is, for
  // 10^8 examples at least.
  double twice = 0;
  double below = 0;  // Non-clicks of the bins before.
  double clicks = 0;
  for (const auto& [bin, counts] : bins_) {
    const auto no = static_cast<double>(counts.non_clicks);
    const auto yes = static_cast<double>(counts.clicks);
    twice += yes * (2 * below + no);
    below += no;
    clicks += yes;
  }
  return twice / (2 * below * clicks);  // 0 / 0 is NaN.
}

}  // namespace capstan
