#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/job/validate/validate.h"

namespace capstan::validate_training_test {
namespace {

using Lines = std::vector<std::string>;

constexpr char kNumbers[] = R"(
  model { zoo: "mlp" loss { squared {} } }
  data {
    format: NUMPY
    train { images: "/d/x.npy" labels: "/d/y.npy" }
    validation { images: "/d/vx.npy" labels: "/d/vy.npy" }
  }
  training { epochs: 9 batch_size: 64 }
  optimizer { sgd {} learning_rate: 0.01 }
  resources { workers: 2 }
)";

v1::JobSpec With(const std::string& change) {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(kNumbers, &spec));
  REQUIRE(google::protobuf::TextFormat::MergeFromString(change, &spec));
  return spec;
}

Lines Errors(const v1::JobSpec& spec) {
  Lines lines;
  for (const Diagnostic& diagnostic : ValidateJob(spec)) lines.push_back(diagnostic.ToString());
  return lines;
}
Lines ErrorsAfter(const std::string& change) { return Errors(With(change)); }

TEST_CASE("Validate training: losses of numbers", "[job]") {
  for (const char* const loss : {"squared {}", "huber {}", "huber { delta: 2 }", "quantile {}",
                                 "quantile { q: 0.9 }", "sigmoid_cross_entropy {}"}) {
    CHECK(ErrorsAfter(std::string("model { loss { ") + loss + " } }").empty());
  }
  CHECK(ErrorsAfter("model { loss { huber { delta: 0 } } }") ==
        Lines{"model.loss.huber.delta: got 0, expected a finite number above 0"});
  CHECK(ErrorsAfter("model { loss { quantile { q: 1 } } }") ==
        Lines{"model.loss.quantile.q: got 1, expected a number in (0, 1)"});
  CHECK(
      ErrorsAfter("model { classes: 3 }") ==
      Lines{"model.classes: got 3, expected nothing: labels that are numbers say how many outputs "
            "there are"});
  v1::JobSpec none = With("");
  none.mutable_model()->mutable_loss()->Clear();
  none.mutable_model()->set_classes(3);
  CHECK(Errors(none) ==
        Lines{"model.loss: got nothing, expected one of softmax_cross_entropy, squared, "
              "huber, quantile, sigmoid_cross_entropy"});
  CHECK(
      ErrorsAfter("data { format: IDX }") ==
      Lines{"model.loss: got squared, expected softmax_cross_entropy, as data.format is IDX, whose "
            "labels are classes; those of NUMPY may be numbers"});
}

TEST_CASE("Validate training: what only CPUs compute is refused on GPUs by name", "[job]") {
  CHECK(
      ErrorsAfter("resources { device: \"cuda\" }") ==
      Lines{
          "resources.device: got \"cuda\", expected the CPU: no loss squared is computed on GPUs"});
  CHECK(ErrorsAfter("resources { gpus: 1 } model { classes: 2 loss { softmax_cross_entropy {} } } "
                    "training { class_weights: [ 1, 2 ] }") ==
        Lines{"resources.gpus: got 1, expected the CPU: no loss with class_weights is computed on "
              "GPUs"});
}

TEST_CASE("Validate training: a layer that only CPUs compute is refused on GPUs by name", "[job]") {
  v1::JobSpec spec = With("resources { device: 'auto' gpus: 1 }");
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      R"(classes: 2 loss { softmax_cross_entropy {} }
         layers { name: 'n' rms_normalization {} }
         layers { name: 'f' fully_connected { units: 2 } })",
      spec.mutable_model()));
  CHECK(Errors(spec) == Lines{"resources.device: got \"auto\", expected the CPU: no layer "
                              "rms_normalization is computed on GPUs"});
  spec.mutable_resources()->set_device("cpu");
  spec.mutable_resources()->clear_gpus();
  CHECK(Errors(spec).empty());
}

TEST_CASE("Validate training: weights fit the loss", "[job]") {
  CHECK(ErrorsAfter("training { class_weights: [ 1, 2 ] }") ==
        Lines{"training.class_weights: got 2 weights, expected nothing: they are for the loss "
              "softmax_cross_entropy, and model.loss is squared"});
  const std::string softmax = "model { classes: 2 loss { softmax_cross_entropy {} } } ";
  CHECK(ErrorsAfter(softmax + "training { class_weights: [ 1, 2 ] }").empty());
  CHECK(ErrorsAfter(softmax + "training { class_weights: [ 1, -1 ] }") ==
        Lines{"training.class_weights[1]: got -1, expected a finite number of at least 0"});
  CHECK(ErrorsAfter(softmax + "training { class_weights: [ 0, 0 ] }") ==
        Lines{"training.class_weights: got zeros, expected at least one above 0"});
  const std::string sigmoid = "model { loss { sigmoid_cross_entropy {} } } ";
  CHECK(ErrorsAfter(sigmoid + "training { positive_weights: 3 }").empty());
  CHECK(ErrorsAfter(sigmoid + "training { positive_weights: 0 }") ==
        Lines{"training.positive_weights[0]: got 0, expected a finite number above 0"});
  CHECK(ErrorsAfter(softmax + "training { positive_weights: 3 }") ==
        Lines{"training.positive_weights: got 1 weight, expected nothing: they are for the loss "
              "sigmoid_cross_entropy, and model.loss is softmax_cross_entropy"});
}

TEST_CASE("Validate training: decisions need a split and a metric that it has", "[job]") {
  CHECK(ErrorsAfter("training { metric: MAE keep_best: true early_stopping { patience: 3 } "
                    "reduce_on_plateau { factor: 0.5 patience: 2 minimum: 0.01 } }")
            .empty());
  CHECK(ErrorsAfter("training { metric: RMSE }") ==
        Lines{"training.metric: got RMSE, expected nothing without early_stopping, keep_best or "
              "reduce_on_plateau, which decide by it"});
  CHECK(
      ErrorsAfter("training { metric: AUC keep_best: true }") ==
      Lines{"training.metric: got AUC, expected LOSS or RMSE or MAE, which the model's evaluation "
            "has"});
  v1::JobSpec alone = With("training { keep_best: true }");
  alone.mutable_data()->clear_validation();
  CHECK(Errors(alone) == Lines{"training.keep_best: got a value, expected data.validation (or "
                               "data.test) beside it: it decides by the figures of that split"});
  CHECK(ErrorsAfter("training { early_stopping { min_delta: -1 } }") ==
        Lines{"training.early_stopping.patience: got 0 or nothing, expected at least 1",
              "training.early_stopping.min_delta: got -1, expected a finite number of at least 0"});
  CHECK(ErrorsAfter("training { reduce_on_plateau { factor: 1 patience: 1 minimum: 0 } }") ==
        Lines{"training.reduce_on_plateau.factor: got 1, expected a number in (0, 1)",
              "training.reduce_on_plateau.minimum: got 0, expected a number in (0, 1]"});
  CHECK(
      ErrorsAfter("optimizer { ftrl {} } training { reduce_on_plateau { factor: 0.5 patience: 1 "
                  "} }") ==
      Lines{
          "training.reduce_on_plateau: got a value, expected nothing with ftrl, whose state rests "
          "on the rate of each update"});
}

TEST_CASE("Validate training: a validation split is checked as the others", "[job]") {
  CHECK(ErrorsAfter("data { validation { files: \"x\" } }") ==
        Lines{"data.validation.files: got 1 path, expected none: format NUMPY reads images and "
              "labels"});
}

}  // namespace
}  // namespace capstan::validate_training_test
