#include "worker/prediction/more_figures.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace capstan::worker {
namespace {

NamedFigures FiguresOf(Objective objective, const std::vector<Predictions>& parts,
                       int64_t width = 1) {
  MoreFigures figures(objective);
  for (const Predictions& part : parts) figures.Add(part, width);
  return figures.Figures();
}

TEST_CASE("More figures: a label among the five largest logits is one", "[worker][prediction]") {
  // The order of classes: 6, 5, ..., 0.
  const std::vector<float> logits = {0, 1, 2, 3, 4, 5, 6};
  std::vector<Predictions> parts;
  for (const float label : {6.0f, 2.0f, 1.0f}) {
    parts.push_back({.labels = {label}, .outputs = logits});
  }
  CHECK(FiguresOf(Objective::kClasses, parts, 7) == NamedFigures{{"top-5 accuracy", 2.0 / 3}});
  // Of equal ones the first five.
  const std::vector<float> even(7, 1.0f);
  CHECK(FiguresOf(Objective::kClasses, {{.labels = {4}, .outputs = even}}, 7)[0].second == 1);
  CHECK(FiguresOf(Objective::kClasses, {{.labels = {5}, .outputs = even}}, 7)[0].second == 0);
  const std::vector<float> lost(7, std::numeric_limits<float>::quiet_NaN());
  CHECK(FiguresOf(Objective::kClasses, {{.labels = {0}, .outputs = lost}}, 7)[0].second == 0);
  CHECK(FiguresOf(Objective::kClasses, {{.labels = {0}, .outputs = {1, 2, 3, 4, 5}}}, 5).empty());
}

TEST_CASE("More figures: precision, recall and F1 of clicks", "[worker][prediction]") {
  // Predicted: 3, clicks: 2, both: 1. A logit of 0 predicts none.
  const Predictions half{.labels = {1, 0, 0}, .outputs = {2, 2, 2}};
  const Predictions rest{.labels = {1, -1}, .outputs = {0, -3}};
  CHECK(FiguresOf(Objective::kClicks, {half, rest}) ==
        NamedFigures{{"precision", 1.0 / 3}, {"recall", 0.5}, {"F1", 0.4}});
  const Predictions none{.labels = {1}, .outputs = {-1}};
  CHECK(FiguresOf(Objective::kClicks, {none}) == NamedFigures{{"recall", 0.0}, {"F1", 0.0}});
  const Predictions nothing{.labels = {0}, .outputs = {-1}};
  CHECK(FiguresOf(Objective::kClicks, {nothing}).empty());
}

TEST_CASE("More figures: the mean absolute error of ratings", "[worker][prediction]") {
  CHECK(FiguresOf(Objective::kRatings, {{.labels = {3, 5}, .outputs = {2.5f, 7}}}) ==
        NamedFigures{{"MAE", 1.25}});
  CHECK(FiguresOf(Objective::kRatings, {}).empty());
}

TEST_CASE("More figures: words and examples without labels have none", "[worker][prediction]") {
  const Predictions some{.labels = {0}, .outputs = {1}};
  CHECK(FiguresOf(Objective::kWords, {some}).empty());
  CHECK(FiguresOf(Objective::kUnlabeled, {some}).empty());
}

}  // namespace
}  // namespace capstan::worker
