#include "common/metrics/score_counts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "common/random/normal.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::score_counts_test {
namespace {

using Scores = std::vector<std::pair<float, bool>>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The AUC by comparing every pair.
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

ScoreCounts CountsOf(const Scores& scores) {
  ScoreCounts counts;
  for (const auto& [score, clicked] : scores) counts.Add(score, clicked);
  return counts;
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

TEST_CASE("AUC: the rank formula, whatever the scale of the scores", "[common][metrics]") {
  for (const double scale : {1e-20, 0.01, 1.0, 100.0, 1e20}) {
    const Scores scores = DrawScores(1, 3000, scale);
    INFO("scale " << scale);
    CHECK(CountsOf(scores).Auc() == Approx(ExactAuc(scores)).margin(2e-5));
  }
}

TEST_CASE("AUC: exact where scores differ by more than a bin, and for ties", "[common][metrics]") {
  Scores scores;
  for (uint32_t i = 0; i < 500; ++i) {
    const auto words = Philox4x32(3, i);
    scores.emplace_back(static_cast<float>(words[0] % 64) - 32, words[1] % 3 == 0);
  }
  CHECK(CountsOf(scores).Auc() == ExactAuc(scores));
}

TEST_CASE("AUC: ends of the range", "[common][metrics]") {
  CHECK(CountsOf({{-1.0f, false}, {2.0f, true}}).Auc() == 1);
  CHECK(CountsOf({{-1.0f, true}, {2.0f, false}}).Auc() == 0);
  CHECK(CountsOf({{0.0f, true}, {-0.0f, false}}).Auc() == 0.5);
  CHECK(CountsOf({{-kInfinity, false}, {-3e38f, true}, {kInfinity, true}}).Auc() == 1);
  CHECK(std::isnan(ScoreCounts().Auc()));
  CHECK(std::isnan(CountsOf({{1.0f, true}}).Auc()));
  CHECK(std::isnan(CountsOf({{1.0f, false}}).Auc()));
}

TEST_CASE("AUC: a NaN is not hidden", "[common][metrics]") {
  for (const float nan : {kNan, -kNan}) {
    CHECK(std::isnan(CountsOf({{1.0f, true}, {0.0f, false}, {nan, true}}).Auc()));
  }
}

TEST_CASE("AUC: parts merged give the counts of the whole, in any order", "[common][metrics]") {
  const Scores scores = DrawScores(2, 1001, 1);
  const ScoreCounts a = CountsOf(Scores(scores.begin(), scores.begin() + 400));
  const ScoreCounts b = CountsOf(Scores(scores.begin() + 400, scores.end()));
  ScoreCounts forth = a, back = b;
  forth.Merge(b);
  forth.Merge(ScoreCounts());
  back.Merge(a);
  CHECK(forth == CountsOf(scores));
  CHECK(back == forth);
  CHECK(forth.Auc() == CountsOf(scores).Auc());
  CHECK(forth.Examples() == 1001);
  CHECK(forth.bins().size() < 1001);
}

TEST_CASE("Score counts: bins appended one by one give the same counts", "[common][metrics]") {
  const ScoreCounts counts = CountsOf(DrawScores(4, 300, 1));
  ScoreCounts again;
  CHECK(again.empty());
  for (const auto& [bin, in_bin] : counts.bins()) REQUIRE_OK(again.Append(bin, in_bin));
  CHECK(again == counts);
}

TEST_CASE("Score counts: bins and counts that cannot be are refused, and change nothing",
          "[common][metrics]") {
  ScoreCounts counts;
  REQUIRE_OK(counts.Append(7, {.non_clicks = 2, .clicks = 0}));
  const ScoreCounts before = counts;
  const auto refused = [&](int64_t bin, int64_t non_clicks, int64_t clicks, const char* why) {
    CHECK_STATUS(counts.Append(bin, {non_clicks, clicks}), absl::StatusCode::kInvalidArgument, why);
    CHECK(counts == before);
  };
  refused(7, 1, 1, "score bin 7, expected one from 8 to 65535");
  refused(-1, 1, 1, "score bin -1");
  refused(65536, 1, 1, "score bin 65536");
  refused(9, -1, 1, "score bin 9: -1 non-clicks, expected 0 to");
  refused(9, 1, ScoreCounts::kCountMax + 1, "clicks, expected 0 to 1099511627776");
  refused(9, 0, 0, "score bin 9 has no examples");
  REQUIRE_OK(counts.Append(65535, {ScoreCounts::kCountMax, ScoreCounts::kCountMax}));
}

}  // namespace
}  // namespace capstan::score_counts_test
