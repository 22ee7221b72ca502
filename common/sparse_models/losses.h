// Losses of one example, with their slopes. Symbols: z an output of the model, y a label.
//
//   log loss  -log(sigmoid(z)) if clicked, else -log(1 - sigmoid(z)); computed as
//             max(z, 0) - z [clicked] + log(1 + exp(-|z|)), which is exact for large |z|, too
//   squared   (z - y)^2
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_LOSSES_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_LOSSES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan {

struct LossAndSlope {
  double loss = 0;
  double slope = 0;  // d(loss)/d(output).
};

inline double Sigmoid(double z) {
  if (z < 0) {
    const double small = std::exp(z);
    return small / (1 + small);
  }
  return 1 / (1 + std::exp(-z));
}

inline LossAndSlope LogLoss(double logit, bool clicked) {
  // `z < 0 ? 0 : z`, not the other way round, keeps NaN.
  const double positive_part = logit < 0 ? 0 : logit;
  return {.loss = positive_part - (clicked ? logit : 0) + std::log1p(std::exp(-std::abs(logit))),
          .slope = clicked ? -Sigmoid(-logit) : Sigmoid(logit)};
}

inline LossAndSlope SquaredLoss(double output, double label) {
  const double error = output - label;
  return {.loss = error * error, .slope = 2 * error};
}

// Returns whether a logit is on the right side of 0; false for a squared loss.
inline bool IsCorrect(SparseLoss loss, double output, double label) {
  return loss == SparseLoss::kLogLoss && (output > 0) == (label > 0);
}

// REQUIRES: loss is not kNegativeSampling, which has no label. A label that is NaN is no click, and
// a loss of NaN.
inline LossAndSlope LossOf(SparseLoss loss, double output, double label) {
  if (loss == SparseLoss::kSquared) return SquaredLoss(output, label);
  LossAndSlope result = LogLoss(output, label > 0);
  if (std::isnan(label)) result = {.loss = label, .slope = label};
  return result;
}

// The losses of a batch: outputs[i] is the output of the example with labels[i]. Slopes are divided
// by gradient_samples. REQUIRES: same as LossOf.
template <typename Output>
SparseResult FindLosses(SparseLoss loss, const Output* outputs, absl::Span<const float> labels,
                        int64_t gradient_samples, std::vector<float>* slopes) {
  SparseResult result = {.losses = static_cast<int64_t>(labels.size())};
  slopes->resize(labels.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto output = static_cast<double>(outputs[i]);
    const auto label = static_cast<double>(labels[i]);
    const LossAndSlope found = LossOf(loss, output, label);
    result.loss_sum += found.loss;
    result.correct += IsCorrect(loss, output, label) ? 1 : 0;
    (*slopes)[i] = static_cast<float>(found.slope / static_cast<double>(gradient_samples));
  }
  return result;
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_LOSSES_H_
