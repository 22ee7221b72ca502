// DecideBy: what a job decides by the figures of its epochs: which of them is the best, whether the
// last one was the last of all, and how far the learning rate is reduced.
//
// All of it follows from the results alone, so nothing else must be kept: a job that goes back to a
// checkpoint has the results of that moment, and decides the same again.
// Thread safety: a pure function of values.
#ifndef CAPSTAN_SCHEDULER_CORE_PLAN_EPOCH_DECISIONS_H_
#define CAPSTAN_SCHEDULER_CORE_PLAN_EPOCH_DECISIONS_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/events.h"

namespace capstan::scheduler {

// The job file's Training says what each of these means.
struct DecisionPlan {
  enum class Metric { kLoss, kAccuracy, kAuc, kRmse, kMae, kF1, kTop5Accuracy };
  friend constexpr Metric LastOf(Metric) { return Metric::kTop5Accuracy; }
  Metric metric = Metric::kLoss;
  bool on_validation = false;  // The figures are of the validation split; else of the test split.
  bool keep_best = false;
  int stop_patience = 0;  // Epochs; 0: no early stopping.
  double stop_min_delta = 0;
  int plateau_patience = 0;  // Epochs; 0: the rate is not reduced.
  double plateau_min_delta = 0;
  double plateau_factor = 1;   // (0, 1).
  double plateau_minimum = 0;  // The least product of all factors.
  friend bool operator==(const DecisionPlan&, const DecisionPlan&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(metric, on_validation, keep_best, stop_patience, stop_min_delta, plateau_patience,
            plateau_min_delta, plateau_factor, plateau_minimum);
  }
};

struct EpochDecisions {
  std::optional<Epoch> best;        // The first of equal ones. Nothing: none has the metric.
  bool stop = false;                // No epoch is to follow.
  double learning_rate_factor = 1;  // The factor of the next epoch.
};

// `results`: of all epochs so far, in their order. A metric that is missing or NaN is no
// improvement.
EpochDecisions DecideBy(const DecisionPlan& plan, absl::Span<const EpochResult> results);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLAN_EPOCH_DECISIONS_H_
