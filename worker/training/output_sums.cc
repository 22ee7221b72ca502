#include "worker/training/output_sums.h"

#include <cmath>
#include <cstddef>

namespace capstan::worker {
namespace {

// The number of classes ranked before `label`; among equal logits the first class ranks first.
int64_t PlaceOf(const float* logits, size_t label, size_t classes) {
  int64_t before = 0;
  for (size_t k = 0; k < classes; ++k) {
    before += logits[k] > logits[label] || (logits[k] == logits[label] && k < label);
  }
  return before;
}

}  // namespace

void SumOutputs(const PlannedLoss& loss, int64_t outputs, absl::Span<const float> logits,
                absl::Span<const int32_t> labels, absl::Span<const float> targets, OutputSums* sums,
                ScoreCounts* scores) {
  const auto width = static_cast<size_t>(outputs);
  if (loss.of_classes()) {
    if (outputs <= OutputSums::kTop) return;
    for (size_t i = 0; i < labels.size(); ++i) {
      const float* const row = logits.data() + i * width;
      const auto label = static_cast<size_t>(labels[i]);
      // A NaN compares with nothing: it is no prediction.
      const bool among = !std::isnan(row[label]) && PlaceOf(row, label, width) < OutputSums::kTop;
      sums->among_five += among ? 1 : 0;
    }
    sums->values += static_cast<int64_t>(labels.size());
    return;
  }
  sums->values += static_cast<int64_t>(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (loss.kind == PlannedLoss::Kind::kSigmoid) {
      const bool predicted = logits[i] > 0, positive = targets[i] > 0;
      sums->predicted += predicted ? 1 : 0;
      sums->positives += positive ? 1 : 0;
      sums->hits += predicted && positive ? 1 : 0;
      scores->Add(logits[i], positive);
      continue;
    }
    const double error = double{logits[i]} - double{targets[i]};
    sums->squared_errors += error * error;
    sums->absolute_errors += std::fabs(error);
  }
}

}  // namespace capstan::worker
