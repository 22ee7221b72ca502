// Results of an evaluation: sums over samples, and the figures that follow from them.
//
// Only this file computes these figures: for the scheduler, from the sums of all tasks, and for
// `capstan evaluate`, from those of an exported model.
// Thread safety: values and pure functions.
#ifndef CAPSTAN_COMMON_METRICS_EVALUATION_H_
#define CAPSTAN_COMMON_METRICS_EVALUATION_H_

#include <cstdint>
#include <optional>

#include "common/metrics/score_counts.h"

namespace capstan {

// The kind of a job's samples. It decides which figures beside the loss say how well they are
// predicted.
enum class Objective {
  kClasses,    // Accuracy.
  kClicks,     // Accuracy; AUC of the test set.
  kRatings,    // RMSE of the test set: the loss is the squared error.
  kWords,      // None.
  kUnlabeled,  // None: the examples have no labels.
  kNumbers,    // RMSE and MAE of the test set, over all outputs.
  kLabels,     // Several labels a sample: AUC and F1, over all pairs of a sample and a label.
};
constexpr Objective LastOf(Objective) { return Objective::kLabels; }

inline bool HasAccuracy(Objective objective) {
  return objective == Objective::kClasses || objective == Objective::kClicks;
}

// Sums over the outputs of models of layers.
struct OutputSums {
  int64_t values = 0;         // kNumbers, kLabels: outputs. kClasses: samples, if there are more
                              // than kTop classes.
  double squared_errors = 0;  // kNumbers: of output minus label.
  double absolute_errors = 0;
  int64_t among_five = 0;  // kClasses: samples whose label is among the kTop largest logits.
  int64_t predicted = 0;   // kLabels: outputs whose probability is above 0.5,
  int64_t positives = 0;   // those whose label is 1,
  int64_t hits = 0;        // and those for which both are true.

  static constexpr int64_t kTop = 5;

  OutputSums& operator+=(const OutputSums& other);
  // The counts are not negative, and no part is larger than the whole.
  bool IsPossible() const;
  friend bool operator==(const OutputSums&, const OutputSums&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(values, squared_errors, absolute_errors, among_five, predicted, positives, hits);
  }
};

// Sums over evaluated samples.
struct EvaluationSum {
  int64_t samples = 0;
  double loss = 0;
  int64_t correct = 0;
  OutputSums outputs = {};
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(samples, loss, correct, outputs);
  }
};

struct EvaluationFigures {
  int64_t samples = 0;
  double loss = 0;                      // Mean of a sample.
  std::optional<double> accuracy = {};  // Share; kClasses and kClicks.
  // kClicks and kLabels, if all samples have their scores, none is NaN, and there are both clicks
  // and others.
  std::optional<double> auc = {};
  std::optional<double> rmse = {};  // kRatings: the root of the loss. kNumbers: of the errors.
  std::optional<double> mae = {};   // kNumbers.
  std::optional<double> f1 = {};    // kLabels, unless no label is 1 and none is predicted.
  std::optional<double> top5_accuracy = {};  // kClasses, of more than five.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(samples, loss, accuracy, auc, rmse, mae, f1, top5_accuracy);
  }
};

// REQUIRES: sum.samples >= 1.
EvaluationFigures FiguresOf(Objective objective, const EvaluationSum& sum,
                            const ScoreCounts& scores);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_METRICS_EVALUATION_H_
