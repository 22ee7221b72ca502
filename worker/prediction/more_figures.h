// MoreFigures: what predictions of a model on examples say beyond what training reports.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_PREDICTION_MORE_FIGURES_H_
#define CAPSTAN_WORKER_PREDICTION_MORE_FIGURES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/evaluation.h"
#include "worker/prediction/predictor.h"

namespace capstan::worker {

// By name, in the order in which they are shown. Shares are in [0, 1].
using NamedFigures = std::vector<std::pair<std::string, double>>;

class MoreFigures {
 public:
  explicit MoreFigures(Objective objective) : objective_(objective) {}

  void Add(const Predictions& predictions);

  // Of all that were added:
  //   kClicks   "precision", "recall" and "F1" of those that are predicted to be clicks, where
  //             they exist: none is predicted, or none is a click, else
  //   kRatings  "MAE": the mean of |predicted - label|
  NamedFigures Figures() const;

 private:
  const Objective objective_;
  int64_t samples_ = 0;
  int64_t predicted_ = 0, clicks_ = 0, hits_ = 0;  // Hits: clicks that were predicted.
  double absolute_errors_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_MORE_FIGURES_H_
