#include "scheduler/core/plan/epoch_decisions.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace capstan::scheduler::epoch_decisions_test {
namespace {

using Metric = DecisionPlan::Metric;

std::vector<EpochResult> Losses(const std::vector<double>& losses) {
  std::vector<EpochResult> results;
  for (const double loss : losses) {
    results.push_back({.epoch = Epoch(static_cast<int32_t>(results.size()))});
    results.back().validation = EvaluationFigures{.samples = 10, .loss = loss, .auc = 1 - loss};
    // The test split has the opposite result, which must not count.
    results.back().test_samples = 10;
    results.back().test_loss = 1 - loss;
  }
  return results;
}

TEST_CASE("Epoch decisions: the best epoch is the first of the best", "[scheduler][core]") {
  DecisionPlan plan{.on_validation = true};
  CHECK_FALSE(DecideBy(plan, {}).best.has_value());
  CHECK(DecideBy(plan, Losses({0.5, 0.3, 0.4, 0.3})).best == Epoch(1));
  plan.metric = Metric::kAuc;
  CHECK(DecideBy(plan, Losses({0.5, 0.3, 0.4, 0.3})).best == Epoch(1));
  plan.on_validation = false;
  plan.metric = Metric::kLoss;
  CHECK(DecideBy(plan, Losses({0.5, 0.3, 0.4, 0.3})).best == Epoch(0));
}

TEST_CASE("Epoch decisions: a figure that is not there, or NaN, is no improvement",
          "[scheduler][core]") {
  DecisionPlan plan{.metric = Metric::kMae, .on_validation = true, .stop_patience = 2};
  CHECK_FALSE(DecideBy(plan, Losses({0.5, 0.3})).best.has_value());
  CHECK(DecideBy(plan, Losses({0.5, 0.3})).stop);
  plan.metric = Metric::kLoss;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(DecideBy(plan, Losses({nan, 0.3, nan})).best == Epoch(1));
  CHECK_FALSE(DecideBy(plan, Losses({nan, 0.3, nan})).stop);
  CHECK(DecideBy(plan, Losses({0.3, nan, nan})).stop);
}

TEST_CASE("Epoch decisions: training stops after `patience` epochs without an improvement",
          "[scheduler][core]") {
  DecisionPlan plan{.on_validation = true, .stop_patience = 2, .stop_min_delta = 0.1};
  CHECK_FALSE(DecideBy(plan, {}).stop);
  CHECK_FALSE(DecideBy(plan, Losses({0.5, 0.45})).stop);
  CHECK(DecideBy(plan, Losses({0.5, 0.45, 0.41})).stop);  // Each gain is below min_delta.
  CHECK_FALSE(DecideBy(plan, Losses({0.5, 0.45, 0.39})).stop);
  CHECK_FALSE(DecideBy(plan, Losses({0.5, 0.45, 0.39, 0.4})).stop);
  CHECK(DecideBy(plan, Losses({0.5, 0.45, 0.39, 0.4, 0.4})).stop);
  // The best epoch may be one that did not count as an improvement.
  CHECK(DecideBy(plan, Losses({0.5, 0.45, 0.41})).best == Epoch(2));
  plan.stop_patience = 0;
  CHECK_FALSE(DecideBy(plan, Losses(std::vector<double>(50, 1.0))).stop);
}

TEST_CASE("Epoch decisions: the rate is reduced on each plateau, down to the minimum",
          "[scheduler][core]") {
  const DecisionPlan plan{
      .on_validation = true, .plateau_patience = 2, .plateau_factor = 0.5, .plateau_minimum = 0.2};
  const auto factor = [&](const std::vector<double>& losses) {
    return DecideBy(plan, Losses(losses)).learning_rate_factor;
  };
  CHECK(factor({0.5, 0.5}) == 1);
  CHECK(factor({0.5, 0.5, 0.5}) == 0.5);
  CHECK(factor({0.5, 0.5, 0.5, 0.4, 0.4}) == 0.5);
  CHECK(factor({0.5, 0.5, 0.5, 0.5, 0.5}) == 0.25);
  CHECK(factor({0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}) == 0.2);
  CHECK(factor({0.5, 0.4, 0.3, 0.2, 0.1}) == 1);
  CHECK_FALSE(DecideBy(plan, Losses({0.5, 0.5, 0.5})).stop);
}

}  // namespace
}  // namespace capstan::scheduler::epoch_decisions_test
