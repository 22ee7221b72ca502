#include "worker/training/layer_readers.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/model/plan_model.h"
#include "common/testing/status_matchers.h"
#include "proto/job.pb.h"

namespace capstan::worker {
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
    CHECK_FALSE(readers.MayOverwrite(-1));  // The caller's images.
    CHECK(readers.MayOverwrite(0));
    CHECK(readers.MayOverwrite(1));        // Flatten's input has no other reader.
    CHECK_FALSE(readers.MayOverwrite(3));  // Two read what dropout made.
    CHECK(readers.IsAlias(plan.layers[1]));
    CHECK(readers.IsAlias(plan.layers[3]) == !training);
  }
  // In training dropout alone reads the ReLU, whose backward step needs its output; in evaluation
  // dropout is only a name, and two read it.
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
}  // namespace capstan::worker
