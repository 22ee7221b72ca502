#include "worker/training/program/layer_readers.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/model/plan_model.h"
#include "common/testing/status_matchers.h"
#include "proto/job.pb.h"

namespace capstan::worker::layer_readers_test {
namespace {

ModelPlan Plan(const std::string& text) {
  v1::Model model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &model));
  REQUIRE_OK_AND_ASSIGN(ModelPlan plan, PlanModel(model, {4, 4, 2}, 10));
  return plan;
}

TEST_CASE("Layer readers: ReLU is fused where it alone reads a layer with weights",
          "[worker][training]") {
  const ModelPlan plan = Plan(R"(
    layers { name: "c" convolution { filters: 2 kernel: 1 } }
    layers { name: "r" relu {} }
    layers { name: "d" convolution { filters: 2 kernel: 1 } }
    layers { name: "s" relu {} }
    layers { name: "t" inputs: "s" inputs: "d" add {} }
    layers { name: "u" relu {} }
    layers { name: "f" fully_connected { units: 10 } })");
  const LayerReaders readers(plan, /*training=*/true);
  CHECK(readers.FusedRelu(0) == 1);
  CHECK(readers.FusedRelu(2) == -1);  // The sum reads it too.
  CHECK(readers.FusedRelu(4) == -1);  // A sum has no weights.
  CHECK(readers.FusedRelu(6) == -1);  // Nobody reads it.
}

// Input 4x4x2: c, and d with the same shape.
constexpr char kTwoConvolutions[] = R"(
    layers { name: "c" convolution { filters: 2 kernel: 1 } }
    layers { name: "d" inputs: "c" convolution { filters: 2 kernel: 1 } })";

TEST_CASE("Layer readers: batch norm takes along the ReLU that alone reads it",
          "[worker][training]") {
  const ModelPlan plan = Plan(R"(
    layers { name: "a" batch_normalization {} }
    layers { name: "r" relu {} }
    layers { name: "b" batch_normalization {} }
    layers { name: "s" relu {} }
    layers { name: "x" inputs: "s" inputs: "b" add {} }
    layers { name: "f" fully_connected { units: 10 } }
    layers { name: "e" batch_normalization {} })");
  for (const bool training : {false, true}) {
    const LayerReaders readers(plan, training);
    CHECK(readers.FusedRelu(0) == 1);
    CHECK(readers.FusedAdd(0) == -1);
    CHECK(readers.Maker(1) == 0);
    CHECK(readers.FusedRelu(2) == -1);  // The sum reads it too.
    CHECK(readers.Maker(3) == 3);
    CHECK(readers.FusedRelu(6) == -1);  // Nobody reads it.
  }
}

TEST_CASE("Layer readers: batch norm takes along a sum that a ReLU alone reads",
          "[worker][training]") {
  const ModelPlan plan = Plan(std::string(kTwoConvolutions) + R"(
    layers { name: "b" batch_normalization {} }
    layers { name: "x" inputs: "c" inputs: "b" add {} }
    layers { name: "r" relu {} }
    layers { name: "f" fully_connected { units: 10 } })");
  for (const bool training : {false, true}) {
    const LayerReaders readers(plan, training);
    CHECK(readers.FusedAdd(2) == 3);
    CHECK(readers.Addend(2) == 0);
    CHECK(readers.FusedRelu(2) == 4);
    CHECK(readers.Maker(3) == 2);
    CHECK(readers.Maker(4) == 2);
    CHECK(readers.Maker(5) == 5);
    CHECK_FALSE(readers.MayOverwrite(0));  // The other convolution reads it too.
  }
}

TEST_CASE("Layer readers: of two batch norms that are added the later one takes the sum along",
          "[worker][training]") {
  const ModelPlan plan = Plan(std::string(kTwoConvolutions) + R"(
    layers { name: "b" batch_normalization {} }
    layers { name: "e" inputs: "c" batch_normalization {} }
    layers { name: "x" inputs: "b" inputs: "e" add {} }
    layers { name: "r" relu {} }
    layers { name: "f" fully_connected { units: 10 } })");
  const LayerReaders readers(plan, /*training=*/true);
  CHECK(readers.FusedAdd(2) == -1);
  CHECK(readers.FusedRelu(2) == -1);
  CHECK(readers.FusedAdd(3) == 4);
  CHECK(readers.Addend(3) == 2);
  CHECK(readers.Maker(5) == 3);
  CHECK(readers.MayOverwrite(2));
}

TEST_CASE("Layer readers: batch norm takes no other sum along", "[worker][training]") {
  const char* const sum = GENERATE(
      // The other summand is computed after the batch norm.
      R"(layers { name: "b" batch_normalization {} }
         layers { name: "e" inputs: "c" convolution { filters: 2 kernel: 1 } }
         layers { name: "x" inputs: "b" inputs: "e" add {} }
         layers { name: "r" relu {} })",
      // Only the name of the other summand comes after it.
      R"(layers { name: "b" batch_normalization {} }
         layers { name: "e" inputs: "c" dropout { rate: 0 } }
         layers { name: "x" inputs: "b" inputs: "e" add {} }
         layers { name: "r" relu {} })",
      // No ReLU reads the sum.
      R"(layers { name: "b" batch_normalization {} }
         layers { name: "x" inputs: "b" inputs: "c" add {} }
         layers { name: "r" global_average_pooling {} })",
      // The sum has two readers, one of them a ReLU.
      R"(layers { name: "b" batch_normalization {} }
         layers { name: "x" inputs: "b" inputs: "c" add {} }
         layers { name: "r" relu {} }
         layers { name: "y" inputs: "r" inputs: "x" add {} })",
      // The sum adds the batch norm's output to itself.
      R"(layers { name: "b" batch_normalization {} }
         layers { name: "x" inputs: "b" inputs: "b" add {} }
         layers { name: "r" relu {} })");
  const ModelPlan plan = Plan(std::string(kTwoConvolutions) + sum + R"(
         layers { name: "f" fully_connected { units: 10 } })");
  const LayerReaders readers(plan, /*training=*/true);
  CHECK(readers.FusedAdd(2) == -1);
  CHECK(readers.FusedRelu(2) == -1);
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) CHECK(readers.Maker(i) == i);
}

TEST_CASE("Layer readers: the output of a ReLU may be overwritten if batch norm alone made it",
          "[worker][training]") {
  const ModelPlan plan = Plan(std::string(kTwoConvolutions) + R"(
    layers { name: "b" batch_normalization {} }
    layers { name: "r" relu {} }
    layers { name: "s" relu {} }
    layers { name: "e" batch_normalization {} }
    layers { name: "x" inputs: "e" inputs: "c" add {} }
    layers { name: "t" relu {} }
    layers { name: "u" relu {} }
    layers { name: "f" fully_connected { units: 10 } })");
  const LayerReaders readers(plan, /*training=*/true);
  CHECK(readers.MayOverwrite(3));        // Its backward step finds the sign from the input.
  CHECK_FALSE(readers.MayOverwrite(4));  // A ReLU that is not fused finds it from its output...
  CHECK_FALSE(readers.MayOverwrite(7));  // ...and so does one fused with a sum.
  CHECK(LayerReaders(plan, /*training=*/false).MayOverwrite(7));
}

TEST_CASE("Layer readers: a value may be overwritten by its only reader under any name",
          "[worker][training]") {
  const ModelPlan plan = Plan(R"(
    layers { name: "n" batch_normalization {} }
    layers { name: "v" flatten {} }
    layers { name: "r" relu {} }
    layers { name: "d" dropout { rate: 0.5 } }
    layers { name: "f" fully_connected { units: 10 } }
    layers { name: "g" inputs: "d" fully_connected { units: 10 } }
    layers { name: "h" inputs: "f" inputs: "g" add {} })");
  for (const bool training : {false, true}) {
    const LayerReaders readers(plan, training);
    CHECK_FALSE(readers.MayOverwrite(kNetworkInput));  // These are the caller's images.
    CHECK(readers.MayOverwrite(0));
    CHECK(readers.MayOverwrite(1));        // Flatten's input has no other reader.
    CHECK_FALSE(readers.MayOverwrite(3));  // Two layers read dropout's output.
    CHECK(readers.IsAlias(plan.layers[1]));
    CHECK(readers.IsAlias(plan.layers[3]) == !training);
  }
  // In training only dropout reads the ReLU, whose backward step needs its output; in evaluation
  // dropout is only another name, which two layers read.
  CHECK_FALSE(LayerReaders(plan, true).MayOverwrite(2));
  CHECK_FALSE(LayerReaders(plan, false).MayOverwrite(2));
}

TEST_CASE("Layer readers: a layer that is read twice by one may not be overwritten",
          "[worker][training]") {
  const ModelPlan plan = Plan(R"(
    layers { name: "f" fully_connected { units: 10 } }
    layers { name: "a" inputs: "f" inputs: "f" add {} })");
  CHECK_FALSE(LayerReaders(plan, true).MayOverwrite(0));
}

}  // namespace
}  // namespace capstan::worker::layer_readers_test
