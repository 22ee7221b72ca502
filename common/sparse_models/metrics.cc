#include "common/sparse_models/metrics.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

namespace capstan {
namespace {

// Ascends with the score; -0 and 0 are alike. NaN of either sign is above or below all numbers.
size_t BinOf(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
  constexpr uint32_t kSign = 0x80000000u;
  return (bits & kSign ? ~bits : bits | kSign) >> 16;
}

// A NaN whose set bits are all in the lower half would look like infinity.
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

AucMetric::AucMetric() : bins_(static_cast<size_t>(2 * kAucBins)) {}

void AucMetric::Add(float score, bool clicked) {
  ++bins_[2 * BinOf(std::isnan(score) ? kNan : score) + (clicked ? 1 : 0)];
}

void AucMetric::AddBins(absl::Span<const int64_t> bins) {
  assert(bins.size() == bins_.size());
  for (size_t i = 0; i < bins_.size(); ++i) bins_[i] += bins[i];
}

void AucMetric::Merge(const AucMetric& other) { AddBins(other.bins_); }

double AucMetric::Auc() const {
  const size_t nan = 2 * BinOf(kNan);
  if (bins_[nan] + bins_[nan + 1] > 0) return kNan;
  // Twice the number of pairs in the right order, in doubles: exact below 2^53, that is for 10^8
  // examples at least.
  double twice = 0;
  double below = 0;  // Non-clicks of the bins before.
  double clicks = 0;
  for (size_t i = 0; i < bins_.size(); i += 2) {
    const auto no = static_cast<double>(bins_[i]);
    const auto yes = static_cast<double>(bins_[i + 1]);
    twice += yes * (2 * below + no);
    below += no;
    clicks += yes;
  }
  return twice / (2 * below * clicks);  // 0 / 0 is NaN.
}

double MeanMetric::Mean() const { return sum_ / static_cast<double>(count_); }

double MeanMetric::Root() const { return std::sqrt(Mean()); }

}  // namespace capstan
