#include "worker/prediction/prediction_text.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

namespace capstan::worker::prediction_text_test {
namespace {

using Form = PredictionText::Form;

std::string TextOf(const PredictionText::Options& options, const Predictions& predictions) {
  PredictionText text(options);
  std::string out = text.Header();
  text.Append(predictions, &out);
  return out;
}

// The softmax of the logits 0 and ln 3 is 1/4 and 3/4.
const Predictions kClasses = {
    .first = 7, .labels = {1, 0}, .outputs = {0, 1.0986123f, 1000, -1000}};
const Predictions kScores = {.first = 123456789, .labels = {1, -1}, .outputs = {0.0f, 1.0986123f}};

TEST_CASE("Prediction text: classes have the most probable one, and all if asked for",
          "[worker][prediction]") {
  PredictionText::Options options{.kind = OutputKind::kLogits, .width = 2};
  CHECK(TextOf(options, kClasses) ==
        "index,label,predicted,probability\n"
        "7,1,1,0.75\n"
        "8,0,0,1\n");
  options.all_probabilities = true;
  CHECK(TextOf(options, kClasses) ==
        "index,label,predicted,probability,p0,p1\n"
        "7,1,1,0.75,0.25,0.75\n"
        "8,0,0,1,1,0\n");
  options.form = Form::kJsonLines;
  CHECK(TextOf(options, kClasses) ==
        "{\"index\": 7, \"label\": 1, \"predicted\": 1, \"probability\": 0.75, "
        "\"probabilities\": [0.25, 0.75]}\n"
        "{\"index\": 8, \"label\": 0, \"predicted\": 0, \"probability\": 1, "
        "\"probabilities\": [1, 0]}\n");
}

TEST_CASE("Prediction text: of equal classes the first is predicted", "[worker][prediction]") {
  const Predictions even{.first = 0, .labels = {2}, .outputs = {1, 3, 3}};
  const std::string line = TextOf({.kind = OutputKind::kLogits, .width = 3}, even);
  CHECK(line.find("\n0,2,1,") != std::string::npos);
}

TEST_CASE("Prediction text: clicks have a probability, and a logit above 0 is one",
          "[worker][prediction]") {
  CHECK(TextOf({.kind = OutputKind::kLogit}, kScores) ==
        "index,label,predicted,probability\n"
        "123456789,1,0,0.5\n"
        "123456790,-1,1,0.75\n");
}

TEST_CASE("Prediction text: values and losses stand as they are", "[worker][prediction]") {
  CHECK(TextOf({.kind = OutputKind::kValue}, kScores) ==
        "index,label,predicted\n123456789,1,0\n123456790,-1,1.098612\n");
  CHECK(TextOf({.kind = OutputKind::kLoss}, kScores) ==
        "index,loss\n123456789,0\n123456790,1.098612\n");
  CHECK(TextOf({.form = Form::kJsonLines, .kind = OutputKind::kLoss}, kScores) ==
        "{\"index\": 123456789, \"loss\": 0}\n{\"index\": 123456790, \"loss\": 1.098612}\n");
}

TEST_CASE("Prediction text: numbers and several labels stand side by side",
          "[worker][prediction]") {
  const Predictions wide = {.first = 3, .labels = {1, 0, 0, 1}, .outputs = {0, 1.0986123f, 2, -1}};
  CHECK(TextOf({.kind = OutputKind::kValues, .width = 2}, wide) ==
        "index,label0,predicted0,label1,predicted1\n3,1,0,0,1.098612\n4,0,2,1,-1\n");
  const Predictions one = {.first = 3, .labels = {1.5f}, .outputs = {2}};
  CHECK(TextOf({.kind = OutputKind::kValues}, one) == "index,label,predicted\n3,1.5,2\n");
  const Predictions flags = {.first = 3, .labels = {1, 0}, .outputs = {0, 1.0986123f}};
  CHECK(TextOf({.kind = OutputKind::kFlags, .width = 2}, flags) ==
        "index,label0,predicted0,probability0,label1,predicted1,probability1\n"
        "3,1,0,0.5,0,1,0.75\n");
  CHECK(TextOf({.form = Form::kJsonLines, .kind = OutputKind::kFlags, .width = 2}, flags) ==
        "{\"index\": 3, \"label0\": 1, \"predicted0\": 0, \"probability0\": 0.5, "
        "\"label1\": 0, \"predicted1\": 1, \"probability1\": 0.75}\n");
}

TEST_CASE("Prediction text: what has no label tells none", "[worker][prediction]") {
  CHECK(TextOf({.kind = OutputKind::kLogit, .labelled = false}, kScores) ==
        "index,predicted,probability\n123456789,0,0.5\n123456790,1,0.75\n");
  CHECK(
      TextOf({.form = Form::kJsonLines, .kind = OutputKind::kValue, .labelled = false}, kScores) ==
      "{\"index\": 123456789, \"predicted\": 0}\n"
      "{\"index\": 123456790, \"predicted\": 1.098612}\n");
}

TEST_CASE("Prediction text: a number that is none is valid CSV and JSON", "[worker][prediction]") {
  const Predictions lost{
      .first = 0, .labels = {1}, .outputs = {std::numeric_limits<float>::quiet_NaN()}};
  CHECK(TextOf({.kind = OutputKind::kValue}, lost) == "index,label,predicted\n0,1,nan\n");
  CHECK(TextOf({.form = Form::kJsonLines, .kind = OutputKind::kValue}, lost) ==
        "{\"index\": 0, \"label\": 1, \"predicted\": null}\n");
}

TEST_CASE("Prediction text: figures as people and as programs read them", "[worker][prediction]") {
  const EvaluationFigures classes{.loss = 0.25, .accuracy = 0.8942};
  CHECK(FiguresText(Objective::kClasses, classes, {}, 10000) ==
        "accuracy 89.42 %, loss 0.2500 on 10000 samples");
  CHECK(FiguresJson(classes, {}, 10000) ==
        "{\"samples\": 10000, \"loss\": 0.25, \"accuracy\": 0.89419999999999999}\n");
  const NamedFigures top = {{"top-5 accuracy", 0.5}};
  CHECK(FiguresText(Objective::kClasses, classes, top, 2) ==
        "accuracy 89.42 %, loss 0.2500, top-5 accuracy 0.5000 on 2 samples");
  CHECK(FiguresJson({.loss = 0.25}, top, 2) ==
        "{\"samples\": 2, \"loss\": 0.25, \"top_5_accuracy\": 0.5}\n");
  const EvaluationFigures clicks{.loss = 0.5, .accuracy = 0.5, .auc = 0.75};
  CHECK(FiguresText(Objective::kClicks, clicks, {{"F1", 0.25}}, 1) ==
        "AUC 0.7500, accuracy 50.00 %, loss 0.5000, F1 0.2500 on 1 sample");
  CHECK(FiguresText(Objective::kClicks, {.loss = 0.5, .accuracy = 1}, {}, 2) ==
        "AUC -, accuracy 100.00 %, loss 0.5000 on 2 samples");
  CHECK(FiguresText(Objective::kRatings, {.loss = 4, .rmse = 2}, {{"MAE", 1.5}}, 2) ==
        "RMSE 2.0000, loss 4.0000, MAE 1.5000 on 2 samples");
  CHECK(FiguresJson({.loss = 4, .rmse = 2}, {{"MAE", 1.5}}, 2) ==
        "{\"samples\": 2, \"loss\": 4, \"rmse\": 2, \"mae\": 1.5}\n");
}

}  // namespace
}  // namespace capstan::worker::prediction_text_test
