#include "common/metrics/evaluation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace capstan {
namespace {

constexpr EvaluationSum kSum = {.samples = 4, .loss = 9, .correct = 3};

TEST_CASE("Evaluation: an objective has its own figures", "[metrics]") {
  ScoreCounts scores;
  for (const float score : {0.1f, 0.2f, 0.3f, 0.4f}) scores.Add(score, score > 0.15f);
  const EvaluationFigures classes = FiguresOf(Objective::kClasses, kSum, scores);
  CHECK(classes.loss == 2.25);
  CHECK(classes.accuracy == 0.75);
  CHECK_FALSE(classes.auc.has_value());
  CHECK_FALSE(classes.rmse.has_value());
  const EvaluationFigures clicks = FiguresOf(Objective::kClicks, kSum, scores);
  CHECK(clicks.accuracy == 0.75);
  CHECK(clicks.auc == 1.0);
  CHECK_FALSE(clicks.rmse.has_value());
  const EvaluationFigures ratings = FiguresOf(Objective::kRatings, kSum, scores);
  CHECK(ratings.rmse == 1.5);
  CHECK_FALSE(ratings.accuracy.has_value());
  for (const Objective none : {Objective::kWords, Objective::kUnlabeled}) {
    const EvaluationFigures figures = FiguresOf(none, kSum, scores);
    CHECK(figures.loss == 2.25);
    CHECK_FALSE(figures.accuracy.has_value());
    CHECK_FALSE(figures.auc.has_value());
    CHECK_FALSE(figures.rmse.has_value());
  }
}

TEST_CASE("Evaluation: an AUC is that of all samples or none", "[metrics]") {
  ScoreCounts scores;
  for (const bool clicked : {true, false, true}) scores.Add(0.5f, clicked);
  CHECK_FALSE(FiguresOf(Objective::kClicks, kSum, scores).auc.has_value());
  SECTION("one more and it is there") {
    scores.Add(0.5f, false);
    CHECK(FiguresOf(Objective::kClicks, kSum, scores).auc == 0.5);
  }
  SECTION("a score that is no number") {
    scores.Add(std::numeric_limits<float>::quiet_NaN(), false);
    CHECK_FALSE(FiguresOf(Objective::kClicks, kSum, scores).auc.has_value());
  }
}

}  // namespace
}  // namespace capstan
