#include "common/sparse_models/metrics.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "common/random/normal.h"
#include "common/random/philox.h"

namespace capstan {
namespace {

using Scores = std::vector<std::pair<float, bool>>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// By comparing every pair.
double ExactAuc(const Scores& scores) {
  double right = 0, pairs = 0;
  for (const auto& [yes_score, yes] : scores) {
    if (!yes) continue;
    for (const auto& [no_score, no] : scores) {
      if (no) continue;
      right += yes_score > no_score ? 1 : yes_score == no_score ? 0.5 : 0;
      ++pairs;
    }
  }
  return right / pairs;
}

AucMetric MetricOf(const Scores& scores) {
  AucMetric metric;
  for (const auto& [score, clicked] : scores) metric.Add(score, clicked);
  return metric;
}

// Normal logits of the given scale, clicks drawn by their probabilities.
Scores DrawScores(uint64_t seed, uint64_t count, double scale) {
  Scores scores;
  for (uint64_t i = 0; i < count; ++i) {
    const auto words = Philox4x32(seed, i);
    const double logit = NormalOf(words[0], words[1]);
    const bool clicked = static_cast<double>(ToUnitFloat(words[2])) < 1 / (1 + std::exp(-logit));
    scores.emplace_back(static_cast<float>(scale * logit), clicked);
  }
  return scores;
}

TEST_CASE("AUC: the rank formula, whatever the scale of the scores", "[sparse_models]") {
  for (const double scale : {1e-20, 0.01, 1.0, 100.0, 1e20}) {
    const Scores scores = DrawScores(1, 3000, scale);
    INFO("scale " << scale);
    CHECK(MetricOf(scores).Auc() == Approx(ExactAuc(scores)).margin(2e-5));
  }
}

TEST_CASE("AUC: exact where scores differ by more than a bin, and for ties", "[sparse_models]") {
  Scores scores;
  for (uint32_t i = 0; i < 500; ++i) {
    const auto words = Philox4x32(3, i);
    scores.emplace_back(static_cast<float>(words[0] % 64) - 32, words[1] % 3 == 0);
  }
  CHECK(MetricOf(scores).Auc() == ExactAuc(scores));
}

TEST_CASE("AUC: ends of the range", "[sparse_models]") {
  CHECK(MetricOf({{-1.0f, false}, {2.0f, true}}).Auc() == 1);
  CHECK(MetricOf({{-1.0f, true}, {2.0f, false}}).Auc() == 0);
  CHECK(MetricOf({{0.0f, true}, {-0.0f, false}}).Auc() == 0.5);
  CHECK(MetricOf({{-kInfinity, false}, {-3e38f, true}, {kInfinity, true}}).Auc() == 1);
  CHECK(std::isnan(AucMetric().Auc()));
  CHECK(std::isnan(MetricOf({{1.0f, true}}).Auc()));
  CHECK(std::isnan(MetricOf({{1.0f, false}}).Auc()));
}

TEST_CASE("AUC: a NaN is not hidden", "[sparse_models]") {
  for (const float nan : {kNan, -kNan}) {
    CHECK(std::isnan(MetricOf({{1.0f, true}, {0.0f, false}, {nan, true}}).Auc()));
  }
}

TEST_CASE("AUC: parts merged give the same as the whole", "[sparse_models]") {
  const Scores scores = DrawScores(2, 1001, 1);
  AucMetric merged = MetricOf(Scores(scores.begin(), scores.begin() + 400));
  merged.Merge(MetricOf(Scores(scores.begin() + 400, scores.begin() + 400)));
  const AucMetric rest = MetricOf(Scores(scores.begin() + 400, scores.end()));
  merged.AddBins(rest.bins());
  CHECK(merged.bins() == MetricOf(scores).bins());
  CHECK(merged.Auc() == MetricOf(scores).Auc());
}

TEST_CASE("Mean metric: mean and root of all that was added and merged", "[sparse_models]") {
  MeanMetric a, b;
  CHECK(std::isnan(a.Mean()));
  CHECK(std::isnan(a.Root()));
  a.Add(1);
  a.Add(4);
  b.AddSum(22, 1);
  a.Merge(b);
  CHECK(a.count() == 3);
  CHECK(a.sum() == 27);
  CHECK(a.Mean() == 9);
  CHECK(a.Root() == 3);
}

}  // namespace
}  // namespace capstan
