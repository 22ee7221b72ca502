#include "common/metrics/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace capstan {

namespace {

// Returns the sum of two counts, or the largest number where it has none: workers report them.
int64_t Sum(int64_t a, int64_t b) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return b > kMax - a ? kMax : a + b;
}

}  // namespace

OutputSums& OutputSums::operator+=(const OutputSums& other) {
  values = Sum(values, other.values);
  squared_errors += other.squared_errors;
  absolute_errors += other.absolute_errors;
  among_five = Sum(among_five, other.among_five);
  predicted = Sum(predicted, other.predicted);
  positives = Sum(positives, other.positives);
  hits = Sum(hits, other.hits);
  return *this;
}

bool OutputSums::IsPossible() const {
  return hits >= 0 && hits <= std::min(predicted, positives) &&
         std::max(predicted, positives) <= values && among_five >= 0 && among_five <= values &&
         std::isfinite(squared_errors) && std::isfinite(absolute_errors);
}

EvaluationFigures FiguresOf(Objective objective, const EvaluationSum& sum,
                            const ScoreCounts& scores) {
  const double samples = static_cast<double>(sum.samples);
  const OutputSums& outputs = sum.outputs;
  const double values = static_cast<double>(outputs.values);
  EvaluationFigures figures;
  figures.samples = sum.samples;
  figures.loss = sum.loss / samples;
  if (HasAccuracy(objective)) figures.accuracy = static_cast<double>(sum.correct) / samples;
  if (objective == Objective::kRatings) figures.rmse = std::sqrt(figures.loss);
  if (objective == Objective::kNumbers && outputs.values > 0) {
    figures.rmse = std::sqrt(outputs.squared_errors / values);
    figures.mae = outputs.absolute_errors / values;
  }
  if (objective == Objective::kClasses && outputs.values > 0) {
    figures.top5_accuracy = static_cast<double>(outputs.among_five) / values;
  }
  const double predicted_and_positives =
      static_cast<double>(outputs.predicted) + static_cast<double>(outputs.positives);
  if (objective == Objective::kLabels && predicted_and_positives > 0) {
    // F1 is the harmonic mean of precision and recall.
    figures.f1 = 2 * static_cast<double>(outputs.hits) / predicted_and_positives;
  }
  // The AUC of a part of the samples would be taken for that of all.
  const bool scored = objective == Objective::kClicks || objective == Objective::kLabels;
  const int64_t expected = objective == Objective::kLabels ? outputs.values : sum.samples;
  if (!scored || scores.Examples() != expected) return figures;
  if (const double auc = scores.Auc(); !std::isnan(auc)) figures.auc = auc;
  return figures;
}

}  // namespace capstan
