#include "worker/prediction/more_figures.h"

#include <catch2/catch.hpp>
#include <vector>

namespace capstan::worker::more_figures_test {
namespace {

NamedFigures FiguresOf(Objective objective, const std::vector<Predictions>& parts) {
  MoreFigures figures(objective);
  for (const Predictions& part : parts) figures.Add(part);
  return figures.Figures();
}

TEST_CASE("More figures: precision, recall and F1 of clicks", "[worker][prediction]") {
  // Predicted: 3, clicks: 2, both: 1. A logit of 0 predicts no click.
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

TEST_CASE("More figures: words, examples without labels and models of layers have none",
          "[worker][prediction]") {
  const Predictions some{.labels = {0}, .outputs = {1}};
  CHECK(FiguresOf(Objective::kWords, {some}).empty());
  CHECK(FiguresOf(Objective::kUnlabeled, {some}).empty());
  CHECK(FiguresOf(Objective::kClasses, {some}).empty());
}

}  // namespace
}  // namespace capstan::worker::more_figures_test
