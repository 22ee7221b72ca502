// ScoreCounts: counts the scores of examples with and without a click, for the AUC of many parts.
//
// The area under the ROC curve is the probability that a click has a higher score than a non-click,
// where equal scores count half (the rank formula of Mann and Whitney). Scores are counted in bins:
// the upper 16 bits of the float, in ascending order, so that a bin spans at most 1/128 of its
// score, whatever the scale of the scores is. Only pairs within one bin are misjudged (as ties):
// 10^-5 of the AUC where logits spread over a few units.
//
// Only bins that have examples are kept: a few thousand examples take some tens of KiB. The counts
// of parts, added in any order, are exactly those of the whole.
//
// Thread safety: thread-compatible.
// Invariant: every kept bin has an example, and no count is negative.
#ifndef CAPSTAN_COMMON_METRICS_SCORE_COUNTS_H_
#define CAPSTAN_COMMON_METRICS_SCORE_COUNTS_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"

namespace capstan {

class ScoreCounts {
 public:
  static constexpr int64_t kBinsMax = 1 << 16;
  static constexpr int64_t kCountMax = int64_t{1} << 40;  // Largest count that Append accepts.

  // Examples of one bin.
  struct Counts {
    int64_t non_clicks = 0;
    int64_t clicks = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(non_clicks, clicks);
    }
  };

  // One example. A NaN has a bin of its own, above all numbers.
  void Add(float score, bool clicked);
  void Merge(const ScoreCounts& other);

  // Adds a bin above all that are kept: to rebuild what another process counted.
  // Errors: kInvalidArgument  the bin is not above the last one or not below kBinsMax; a count is
  //                           negative or above kCountMax, or both are 0. Nothing has changed.
  absl::Status Append(int64_t bin, const Counts& counts);

  bool empty() const { return bins_.empty(); }
  int64_t Examples() const;
  // NaN without a click or without a non-click, or if any score was NaN.
  double Auc() const;
  // Indexed by bin; ascends with the score.
  const std::map<uint16_t, Counts>& bins() const { return bins_; }

  friend bool operator==(const ScoreCounts&, const ScoreCounts&) = default;
  // Durable form: see scheduler/store/archive.h.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(bins_);
  }

 private:
  std::map<uint16_t, Counts> bins_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_METRICS_SCORE_COUNTS_H_
