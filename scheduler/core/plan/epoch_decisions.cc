#include "scheduler/core/plan/epoch_decisions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace capstan::scheduler {
namespace {

using Metric = DecisionPlan::Metric;

std::optional<double> ValueOf(Metric metric, const EvaluationFigures& figures) {
  switch (metric) {
    case Metric::kLoss:
      return figures.loss;
    case Metric::kAccuracy:
      return figures.accuracy;
    case Metric::kAuc:
      return figures.auc;
    case Metric::kRmse:
      return figures.rmse;
    case Metric::kMae:
      return figures.mae;
    case Metric::kF1:
      return figures.f1;
    case Metric::kTop5Accuracy:
      return figures.top5_accuracy;
  }
  return std::nullopt;
}

bool LowerIsBetter(Metric metric) {
  return metric == Metric::kLoss || metric == Metric::kRmse || metric == Metric::kMae;
}

// Returns the metric with the sign for which higher is better. nullopt: it is missing or NaN.
std::optional<double> Score(const DecisionPlan& plan, const EpochResult& result) {
  std::optional<EvaluationFigures> figures = result.validation;
  if (!plan.on_validation && result.test_samples > 0) figures = TestFigures(result);
  if (!figures) return std::nullopt;
  const std::optional<double> value = ValueOf(plan.metric, *figures);
  if (!value || std::isnan(*value)) return std::nullopt;
  return LowerIsBetter(plan.metric) ? -*value : *value;
}

// Counts epochs without an improvement.
class Patience {
 public:
  explicit Patience(double min_delta) : min_delta_(min_delta) {}

  void Add(const std::optional<double>& score) {
    if (score && *score > reference_ + min_delta_) {
      reference_ = *score;
      waited_ = 0;
    } else {
      ++waited_;
    }
  }
  bool IsOver(int patience) const { return patience > 0 && waited_ >= patience; }
  void BeginAnew() { waited_ = 0; }

 private:
  const double min_delta_;
  double reference_ = -std::numeric_limits<double>::infinity();  // Score of the last improvement.
  int waited_ = 0;
};

}  // namespace

EpochDecisions DecideBy(const DecisionPlan& plan, absl::Span<const EpochResult> results) {
  EpochDecisions decisions;
  std::optional<double> best;
  Patience stop(plan.stop_min_delta), plateau(plan.plateau_min_delta);
  for (const EpochResult& result : results) {
    const std::optional<double> score = Score(plan, result);
    if (score && (!best || *score > *best)) {
      best = score;
      decisions.best = result.epoch;
    }
    stop.Add(score);
    plateau.Add(score);
    if (!plateau.IsOver(plan.plateau_patience)) continue;
    plateau.BeginAnew();
    const double factor = decisions.learning_rate_factor * plan.plateau_factor;
    decisions.learning_rate_factor = std::max(factor, plan.plateau_minimum);
  }
  decisions.stop = stop.IsOver(plan.stop_patience);
  return decisions;
}

}  // namespace capstan::scheduler
