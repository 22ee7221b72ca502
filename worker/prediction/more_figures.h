// MoreFigures: figures of a model's predictions on examples that training does not report.
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

// Figures with their names, in the order in which they are shown. Shares are in [0, 1].
using NamedFigures = std::vector<std::pair<std::string, double>>;

class MoreFigures {
 public:
  explicit MoreFigures(Objective objective) : objective_(objective) {}

  void Add(const Predictions& predictions);

  // The figures over all predictions that were added:
  //   kClicks   "precision", "recall" and "F1" of the predicted clicks; one that would divide by
  //             zero is left out (no click is predicted, or no example is one)
  //   kRatings  "MAE": the mean of |predicted - label|
  NamedFigures Figures() const;

 private:
  const Objective objective_;
  int64_t samples_ = 0;
  int64_t predicted_ = 0, clicks_ = 0, hits_ = 0;  // hits_: clicks that were predicted.
  double absolute_errors_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_MORE_FIGURES_H_
