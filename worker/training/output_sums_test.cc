#include "worker/training/output_sums.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace capstan::worker::output_sums_test {
namespace {

using Kind = PlannedLoss::Kind;

struct Sums {
  OutputSums outputs;
  ScoreCounts scores;
};

Sums Of(Kind kind, int64_t width, const std::vector<float>& logits,
        const std::vector<int32_t>& labels, const std::vector<float>& targets) {
  Sums sums;
  SumOutputs({.kind = kind}, width, logits, labels, targets, &sums.outputs, &sums.scores);
  return sums;
}

TEST_CASE("Output sums: errors of numbers", "[training]") {
  const Sums sums = Of(Kind::kHuber, 2, {1, 2, 3, 4}, {0, 0}, {1, 4, 3, 3});
  CHECK(sums.outputs == OutputSums{.values = 4, .squared_errors = 5, .absolute_errors = 3});
  CHECK(sums.scores.empty());
}

TEST_CASE("Output sums: several labels are predicted from their logits", "[training]") {
  const Sums sums = Of(Kind::kSigmoid, 3, {-1, 2, 3, 0, 5, -6}, {0, 0}, {0, 1, 0, 1, 1, 0});
  CHECK(sums.outputs == OutputSums{.values = 6, .predicted = 3, .positives = 3, .hits = 2});
  CHECK(sums.scores.Examples() == 6);
  CHECK(sums.scores.Auc() == Approx(7.0 / 9));
}

TEST_CASE("Output sums: a label among the five largest of more than five classes", "[training]") {
  const std::vector<float> even(7, 1.0f);
  CHECK(Of(Kind::kSoftmax, 7, even, {4}, {}).outputs == OutputSums{.values = 1, .among_five = 1});
  CHECK(Of(Kind::kSoftmax, 7, even, {5}, {}).outputs == OutputSums{.values = 1});
  std::vector<float> lost = even;
  lost[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK(Of(Kind::kSoftmax, 7, lost, {0}, {}).outputs == OutputSums{.values = 1});
  CHECK(Of(Kind::kSoftmax, 5, {1, 2, 3, 4, 5}, {0}, {}).outputs == OutputSums());
}

}  // namespace
}  // namespace capstan::worker::output_sums_test
