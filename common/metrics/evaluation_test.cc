#include "common/metrics/evaluation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace capstan::evaluation_test {
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

TEST_CASE("Evaluation: figures of numbers, labels and many classes follow from their outputs",
          "[metrics]") {
  EvaluationSum numbers = kSum;
  numbers.outputs = {.values = 8, .squared_errors = 18, .absolute_errors = 4};
  const EvaluationFigures errors = FiguresOf(Objective::kNumbers, numbers, {});
  CHECK(errors.rmse == 1.5);
  CHECK(errors.mae == 0.5);
  CHECK(errors.samples == 4);
  CHECK_FALSE(errors.accuracy.has_value());
  EvaluationSum labels = kSum;
  labels.outputs = {.values = 8, .predicted = 3, .positives = 5, .hits = 2};
  ScoreCounts scores;
  for (int i = 0; i < 8; ++i) scores.Add(static_cast<float>(i), i > 2);
  const EvaluationFigures flags = FiguresOf(Objective::kLabels, labels, scores);
  CHECK(flags.f1 == 0.5);
  CHECK(flags.auc == 1.0);
  labels.outputs.predicted = labels.outputs.positives = labels.outputs.hits = 0;
  CHECK_FALSE(FiguresOf(Objective::kLabels, labels, scores).f1.has_value());
  labels.outputs.values = 9;  // A score is missing.
  CHECK_FALSE(FiguresOf(Objective::kLabels, labels, scores).auc.has_value());
  EvaluationSum classes = kSum;
  CHECK_FALSE(FiguresOf(Objective::kClasses, classes, {}).top5_accuracy.has_value());
  classes.outputs = {.values = 4, .among_five = 3};
  CHECK(FiguresOf(Objective::kClasses, classes, {}).top5_accuracy == 0.75);
}

TEST_CASE("Evaluation: sums that cannot be are told", "[metrics]") {
  CHECK(OutputSums().IsPossible());
  CHECK(OutputSums{.values = 3, .predicted = 3, .positives = 2, .hits = 2}.IsPossible());
  CHECK_FALSE(OutputSums{.values = 3, .predicted = 2, .positives = 2, .hits = 3}.IsPossible());
  CHECK_FALSE(OutputSums{.values = 3, .predicted = 4}.IsPossible());
  CHECK_FALSE(OutputSums{.values = 3, .among_five = 4}.IsPossible());
  CHECK_FALSE(OutputSums{.values = -1}.IsPossible());
  CHECK_FALSE(OutputSums{.hits = -1}.IsPossible());
  CHECK_FALSE(OutputSums{.squared_errors = std::nan("")}.IsPossible());
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
}  // namespace capstan::evaluation_test
