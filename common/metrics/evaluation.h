// What an evaluation says of a model: sums over samples, and the figures that follow from them.
//
// The one place where they do: the scheduler has the sums of all tasks, `capstan evaluate` those
// of an exported model.
// Thread safety: values and pure functions.
#ifndef CAPSTAN_COMMON_METRICS_EVALUATION_H_
#define CAPSTAN_COMMON_METRICS_EVALUATION_H_

#include <cstdint>
#include <optional>

#include "common/metrics/score_counts.h"

namespace capstan {

// What a job's samples are, and with that which figures beside the loss say how well they are
// predicted.
enum class Objective {
  kClasses,    // Accuracy.
  kClicks,     // Accuracy; AUC of the test set.
  kRatings,    // RMSE of the test set: the loss is the squared error.
  kWords,      // None.
  kUnlabeled,  // None: the examples have no labels.
};

inline bool HasAccuracy(Objective objective) {
  return objective == Objective::kClasses || objective == Objective::kClicks;
}

// Sums over evaluated samples.
struct EvaluationSum {
  int64_t samples = 0;
  double loss = 0;
  int64_t correct = 0;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(samples, loss, correct);
  }
};

struct EvaluationFigures {
  double loss = 0;                 // Mean of a sample.
  std::optional<double> accuracy;  // Share; kClasses and kClicks.
  // kClicks, if all samples have a score, none is NaN, and there are both clicks and others.
  std::optional<double> auc;
  std::optional<double> rmse;  // kRatings: the root of the loss.
};

// REQUIRES: sum.samples >= 1.
EvaluationFigures FiguresOf(Objective objective, const EvaluationSum& sum,
                            const ScoreCounts& scores);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_METRICS_EVALUATION_H_
