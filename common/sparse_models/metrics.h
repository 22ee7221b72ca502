// Metrics of predictions that can be summed over workers: AUC, log loss, RMSE.
//
// Each keeps counts and sums, and Merge adds those of another: the result is that of all examples
// together, whoever has seen them (AUC exactly so, the sums within the rounding of doubles).
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_METRICS_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_METRICS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace capstan {

inline constexpr int64_t kAucBins = 1 << 16;

// The area under the ROC curve: the probability that a click has a higher score than a non-click,
// where equal scores count half (the rank formula of Mann and Whitney).
//
// Scores are counted in bins: the upper 16 bits of the float, in ascending order, so that a bin
// spans at most 1/128 of its score, whatever the scale of the scores is. Only pairs within one bin
// are misjudged (as ties): 10^-5 of the AUC where logits spread over a few units.
class AucMetric {
 public:
  AucMetric();
  void Add(float score, bool clicked);
  void Merge(const AucMetric& other);

  // [kAucBins, 2]: non-clicks and clicks of each bin, in ascending order of the score.
  absl::Span<const int64_t> bins() const { return bins_; }
  // Adds counts that another one's bins() gave. REQUIRES: that size.
  void AddBins(absl::Span<const int64_t> bins);

  // NaN without a click or without a non-click, or if any score was NaN.
  double Auc() const;

 private:
  std::vector<int64_t> bins_;
};

// The mean of a loss over examples.
class MeanMetric {
 public:
  void Add(double loss) {
    sum_ += loss;
    ++count_;
  }
  void AddSum(double sum, int64_t count) {
    sum_ += sum;
    count_ += count;
  }
  void Merge(const MeanMetric& other) { AddSum(other.sum_, other.count_); }

  double sum() const { return sum_; }
  int64_t count() const { return count_; }
  double Mean() const;  // NaN without examples.
  double Root() const;  // Of the mean: the RMSE, if losses are squared errors. NaN likewise.

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_METRICS_H_
