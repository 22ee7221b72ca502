#include "common/model/plan_model.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <initializer_list>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::plan_model_test {
namespace {

v1::Model Parse(const std::string& text) {
  v1::Model model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &model));
  return model;
}

absl::StatusOr<ModelPlan> Plan(const std::string& text, SampleShape input = {8, 8, 3},
                               int64_t classes = 10) {
  return PlanModel(Parse(text), input, classes);
}

constexpr char kResidual[] = R"(
  layers { name: "a" convolution { filters: 4 kernel: 3 padding: 1 bias: false } }
  layers { name: "n" batch_normalization { momentum: 0.25 } }
  layers { name: "r" relu {} }
  layers { name: "s" inputs: "r" inputs: "a" add {} }
  layers { name: "p" max_pooling { kernel: 3 stride: 2 padding: 1 } }
  layers { name: "d" dropout { rate: 0.5 } }
  layers { name: "v" flatten {} }
  layers { name: "f" fully_connected { units: 10 } }
)";

TEST_CASE("Model plan: shapes, inputs and places in the tables follow from the layers",
          "[common][model]") {
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, Plan(kResidual));
  REQUIRE(plan.layers.size() == 8);
  CHECK(plan.layers[0].inputs == std::vector<int>{-1});
  CHECK(plan.layers[3].inputs == std::vector<int>{2, 0});
  CHECK(plan.layers[4].out == SampleShape{4, 4, 4});
  CHECK(plan.layers[6].out == SampleShape{1, 1, 64});
  REQUIRE(plan.parameters.size() == 5);
  CHECK(plan.parameters[0].name == "a.weight");
  CHECK(plan.parameters[0].shape == std::vector<int64_t>{4, 3, 3, 3});
  CHECK(plan.parameters[1].name == "n.weight");
  CHECK(plan.parameters[1].offset == 108);
  CHECK(plan.parameters[2].offset == 112);
  CHECK(plan.parameters[3].name == "f.weight");
  CHECK(plan.parameters[3].shape == std::vector<int64_t>{10, 64});
  CHECK(plan.parameters[4].offset == 116 + 640);
  CHECK(plan.parameter_count == 116 + 640 + 10);
  REQUIRE(plan.statistics.size() == 2);
  CHECK(plan.statistics[0].name == "n.running_mean");
  CHECK(plan.statistics[1].name == "n.running_variance");
  CHECK(plan.statistics[1].momentum == 0.25f);
  CHECK(plan.statistic_count == 8);
}

TEST_CASE("Model plan: layer normalisation has a scale and a shift a channel, and no statistics",
          "[common][model]") {
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, Plan(R"(
    layers { name: "n" layer_normalization { epsilon: 0.5 } }
    layers { name: "u" gelu {} }
    layers { name: "f" fully_connected { units: 10 } })"));
  CHECK(plan.layers[0].epsilon == 0.5f);
  CHECK(plan.layers[1].out == SampleShape{8, 8, 3});
  REQUIRE(plan.parameters.size() == 4);
  CHECK(plan.parameters[0].name == "n.weight");
  CHECK(plan.parameters[0].shape == std::vector<int64_t>{3});
  CHECK(plan.parameters[0].initial.value == 1.0f);
  CHECK(plan.parameters[1].name == "n.bias");
  CHECK(plan.statistics.empty());
  CHECK_STATUS(
      Plan(R"(layers { name: "n" layer_normalization { epsilon: -1 } })"),
      absl::StatusCode::kInvalidArgument,
      "layer \"n\": layer_normalization.epsilon is -1, expected a finite number more than");
}

TEST_CASE("Model plan: RMS normalisation has a scale a channel", "[common][model]") {
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, Plan(R"(
    layers { name: "n" rms_normalization { epsilon: 0.5 } }
    layers { name: "f" fully_connected { units: 10 } })"));
  CHECK(plan.layers[0].epsilon == 0.5f);
  REQUIRE(plan.parameters.size() == 3);
  CHECK(plan.parameters[0].name == "n.weight");
  CHECK(plan.parameters[0].shape == std::vector<int64_t>{3});
  CHECK(plan.parameters[0].initial.value == 1.0f);
  CHECK_STATUS(Plan(R"(layers { name: "n" rms_normalization { epsilon: -1 } })"),
               absl::StatusCode::kInvalidArgument,
               "layer \"n\": rms_normalization.epsilon is -1, expected a finite number more than");
}

TEST_CASE("Model plan: layer normalisation of one channel is refused", "[common][model]") {
  CHECK_STATUS(Plan(R"(layers { name: "n" layer_normalization {} })", {8, 8, 1}),
               absl::StatusCode::kInvalidArgument,
               "layer \"n\": layer_normalization reads 8x8x1, expected 2 channels or more");
}

TEST_CASE("Model plan: initial values are PyTorch's defaults", "[common][model]") {
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, Plan(kResidual));
  CHECK(plan.parameters[0].initial.kind == Initial::Kind::kUniform);
  CHECK(plan.parameters[0].initial.value == Approx(1 / std::sqrt(27.0)));
  CHECK(plan.parameters[1].initial.value == 1.0f);
  CHECK(plan.parameters[2].initial.value == 0.0f);
  CHECK(plan.parameters[3].initial.value == Approx(0.125));
  CHECK(plan.parameters[4].initial.value == Approx(0.125));
  CHECK(plan.statistics[0].initial.value == 0.0f);
  CHECK(plan.statistics[1].initial.value == 1.0f);
}

TEST_CASE("Model plan: a layer may say what its weights start with; its biases then start with 0",
          "[common][model]") {
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, Plan(R"(
    layers { name: "c" convolution { filters: 50 kernel: 2 initial { kaiming_fan_out {} } } }
    layers { name: "d" fully_connected { units: 8 initial { kaiming_fan_out {} } } }
    layers { name: "f" fully_connected { units: 10 initial { normal_std: 0.01 } } })"));
  REQUIRE(plan.parameters.size() == 6);
  const float stds[] = {0.1f, 0.5f, 0.01f};  // sqrt(2 / (50 * 2 * 2)), sqrt(2 / 8).
  for (size_t i = 0; i < 3; ++i) {
    const Initial& weight = plan.parameters[2 * i].initial;
    const Initial& bias = plan.parameters[2 * i + 1].initial;
    CHECK(weight.kind == Initial::Kind::kNormal);
    CHECK(weight.value == Approx(stds[i]));
    CHECK(bias.kind == Initial::Kind::kConstant);
    CHECK(bias.value == 0.0f);
  }
}

TEST_CASE("Model plan: an embedding reads the network's input", "[common][model]") {
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, Plan(R"(
    layers { name: "e" embedding { rows: 100 dim: 4 } }
    layers { name: "f" fully_connected { units: 10 bias: false } })",
                                                   {1, 1, 6}));
  CHECK(plan.layers[0].out == SampleShape{1, 1, 24});
  CHECK(plan.parameters[0].initial.kind == Initial::Kind::kNormal);
  CHECK(plan.parameter_count == 400 + 240);
}

struct BadModel {
  const char* text;
  const char* message;
};

void CheckRefused(std::initializer_list<BadModel> cases) {
  for (const BadModel& bad : cases) {
    INFO(bad.text);
    CHECK_STATUS(Plan(bad.text), absl::StatusCode::kInvalidArgument, bad.message);
  }
}

TEST_CASE("Model plan: an error in the list of layers names the layer and what was expected",
          "[common][model]") {
  CheckRefused({
      {"", "model has neither zoo nor layers"},
      {"zoo: 'lenet' layers { name: 'f' relu {} }", "model has both zoo and layers"},
      {"zoo: 'vgg'", "model.zoo is \"vgg\", expected one of lenet, mlp, resnet18, "},
      {"layers { relu {} }", "model.layers[0].name is \"\", expected 1 to 128 letters"},
      {"layers { name: 'a b' relu {} }", "model.layers[0].name is \"a b\""},
      {"layers { name: 'input' relu {} }", "names the network's input"},
      {"layers { name: 'a' relu {} } layers { name: 'a' relu {} }",
       "model.layers[1].name is \"a\", as of layer 0, expected a name that no other layer has"},
      {"layers { name: 'a' }", "layer \"a\": it has no kind, expected one of convolution"},
      {"layers { name: 'a' inputs: 'z' relu {} }",
       "layer \"a\": inputs[0] is \"z\", expected \"input\" or the name of a layer before it"},
      {"layers { name: 'a' inputs: 'b' relu {} } layers { name: 'b' relu {} }",
       "inputs[0] is \"b\""},
      {"layers { name: 'a' inputs: 'input' inputs: 'input' relu {} }",
       "inputs has 2 names, expected 1 for relu"},
      {"layers { name: 'a' add {} }", "layer \"a\": inputs has 0 names, expected 2 for add"},
  });
}

TEST_CASE("Model plan: an error in a layer names its field, the value and what was expected",
          "[common][model]") {
  CheckRefused({
      {"layers { name: 'c' convolution { filters: -3 kernel: 3 } }",
       "layer \"c\": convolution.filters is -3, expected at least 1"},
      {"layers { name: 'c' convolution { filters: 3 } }",
       "convolution.kernel is 0, expected at least 1"},
      {"layers { name: 'c' convolution { filters: 3 kernel: 1 stride: 0 } }",
       "convolution.stride is 0"},
      {"layers { name: 'c' convolution { filters: 3 kernel: 1 padding: -1 } }",
       "convolution.padding is -1"},
      {"layers { name: 'c' convolution { filters: 3 kernel: 1 padding: 1 } }",
       "convolution.padding is 1, expected less than the kernel, 1"},
      {"layers { name: 'c' convolution { filters: 3 kernel: 11 padding: 1 } }",
       "convolution.kernel is 11, expected at most 10: its input is 8x8x3 with padding 1"},
      {"layers { name: 'p' max_pooling { kernel: 9 } }",
       "max_pooling.kernel is 9, expected at most 8"},
      {"layers { name: 'p' average_pooling { kernel: 2 padding: 2 } }",
       "average_pooling.padding is 2, expected less than the kernel, 2"},
      {"layers { name: 'f' fully_connected { units: -1 } }", "fully_connected.units is -1"},
      {"layers { name: 'f' fully_connected { units: 1 initial { normal_std: -1 } } }",
       "fully_connected.initial.normal_std is -1, expected a finite number of at least 0"},
      {"layers { name: 'c' convolution { filters: 1 kernel: 1 initial { normal_std: inf } } }",
       "convolution.initial.normal_std is inf"},
      {"layers { name: 'd' dropout { rate: 1 } }",
       "dropout.rate is 1, expected at least 0 and less than 1"},
      {"layers { name: 'd' dropout { rate: nan } }", "dropout.rate is nan"},
      {"layers { name: 'b' batch_normalization { momentum: 0 } }",
       "batch_normalization.momentum is 0"},
      {"layers { name: 'b' batch_normalization { epsilon: -1 } }",
       "batch_normalization.epsilon is -1"},
      {"layers { name: 'e' embedding { rows: 0 dim: 1 } }",
       "embedding.rows is 0, expected 1 to 16777216"},
      {"layers { name: 'e' embedding { rows: 1 dim: -2 } }", "embedding.dim is -2"},
  });
}

TEST_CASE("Model plan: layers that do not fit together are named with their shapes",
          "[common][model]") {
  CheckRefused({
      {"layers { name: 'r' relu {} } layers { name: 'e' embedding { rows: 1 dim: 1 } }",
       "layer \"e\": embedding reads \"r\", expected \"input\""},
      {"layers { name: 'c' convolution { filters: 2 kernel: 3 } }"
       "layers { name: 's' inputs: 'c' inputs: 'input' add {} }",
       "layer \"s\": adds \"c\" of 6x6x2 and \"input\" of 8x8x3, expected one shape"},
      {"layers { name: 'f' fully_connected { units: 11 } }",
       "layer \"f\" is the last: its output is 11, expected 10, one value a class"},
      {"layers { name: 'c' convolution { filters: 10 kernel: 3 } }",
       "its output is 6x6x10, expected 10"},
      {"layers { name: 'a' relu {} } layers { name: 'f' inputs: 'input' fully_connected { units: "
       "10 } }",
       "layer \"a\": no layer reads its output"},
      {"layers { name: 'g' inputs: 'input' global_average_pooling {} }",
       "its output is 3, expected 10"},
  });
}

TEST_CASE("Model plan: sizes whose products do not fit 64 bits are refused", "[common][model]") {
  CheckRefused({
      {"layers { name: 'f' fully_connected { units: 2147483647 } }",
       "layer \"f\": its weight of 2147483647x192 elements is too large, expected at most "
       "2147483647"},
      {"layers { name: 'c' convolution { filters: 2147483647 kernel: 2147483647 padding: "
       "2147483646 } }",
       "layer \"c\": its weight of 2147483647x2147483647x2147483647x3 elements is too large"},
      {"layers { name: 'p' max_pooling { kernel: 2147483647 stride: 1 padding: 2147483646 } }",
       "layer \"p\": its output of 2147483654x2147483654x3 values a sample is too large"},
      {"layers { name: 'e' embedding { rows: 1 dim: 2147483647 } }",
       "too large, expected at most 2147483647"},
  });
}

TEST_CASE("Model plan: inputs and classes out of range are refused", "[common][model]") {
  const std::string fc = "layers { name: 'f' fully_connected { units: 10 } }";
  CHECK_STATUS(Plan(fc, {0, 8, 1}), absl::StatusCode::kInvalidArgument, "input image is 0x8x1");
  CHECK_STATUS(Plan(fc, {1 << 20, 1 << 20, 1 << 30}), absl::StatusCode::kInvalidArgument,
               "input image is");
  CHECK_STATUS(Plan(fc, {8, 8, 1}, 1), absl::StatusCode::kInvalidArgument,
               "model.classes is 1, expected 2 to");
  CHECK_STATUS(Plan("layers { name: 'r' relu {} }", {1, 1, 10}), absl::StatusCode::kInvalidArgument,
               "no layer has parameters");
  CHECK_STATUS(Plan("layers { name: 'g' global_average_pooling {} }", {4, 8, 1}),
               absl::StatusCode::kInvalidArgument,
               "layer \"g\": global_average_pooling reads 4x8x1");
}

}  // namespace
}  // namespace capstan::plan_model_test
