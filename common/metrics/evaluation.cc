#include "common/metrics/evaluation.h"

#include <cmath>

namespace capstan {

EvaluationFigures FiguresOf(Objective objective, const EvaluationSum& sum,
                            const ScoreCounts& scores) {
  const double samples = static_cast<double>(sum.samples);
  EvaluationFigures figures;
  figures.loss = sum.loss / samples;
  if (HasAccuracy(objective)) figures.accuracy = static_cast<double>(sum.correct) / samples;
  if (objective == Objective::kRatings) figures.rmse = std::sqrt(figures.loss);
  // A part's AUC would pass for that of all.
  if (objective != Objective::kClicks || scores.Examples() != sum.samples) return figures;
  if (const double auc = scores.Auc(); !std::isnan(auc)) figures.auc = auc;
  return figures;
}

}  // namespace capstan
