#include "worker/training/layer_readers.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace capstan::worker {
namespace {

PlannedLayer Layer(LayerKind kind, std::vector<int> inputs) {
  PlannedLayer layer;
  layer.kind = kind;
  layer.inputs = std::move(inputs);
  return layer;
}

ModelPlan PlanOf(std::vector<PlannedLayer> layers) {
  ModelPlan plan;
  plan.layers = std::move(layers);
  return plan;
}

TEST_CASE("Layer readers: a ReLU is fused if nobody else reads the layer before it",
          "[worker][training]") {
  const ModelPlan plan = PlanOf({
      Layer(LayerKind::kConvolution, {kNetworkInput}),
      Layer(LayerKind::kRelu, {0}),
      Layer(LayerKind::kConvolution, {1}),
      Layer(LayerKind::kRelu, {2}),
      Layer(LayerKind::kAdd, {2, 3}),
      Layer(LayerKind::kRelu, {4}),
  });
  const LayerReaders readers(plan, ProgramKind::kTraining);
  CHECK(readers.FusedRelu(0) == 1);
  CHECK(readers.FusedRelu(1) == -1);  // Its reader is no ReLU.
  CHECK(readers.FusedRelu(2) == -1);  // Read twice.
  CHECK(readers.FusedRelu(4) == -1);  // Add computes no ReLU.
}

TEST_CASE("Layer readers: a value read under two names is not overwritten", "[worker][training]") {
  const ModelPlan plan = PlanOf({
      Layer(LayerKind::kConvolution, {kNetworkInput}),
      Layer(LayerKind::kFlatten, {0}),
      Layer(LayerKind::kRelu, {0}),
      Layer(LayerKind::kFullyConnected, {1}),
      Layer(LayerKind::kFlatten, {3}),
      Layer(LayerKind::kAdd, {2, 4}),
  });
  const LayerReaders readers(plan, ProgramKind::kTraining);
  CHECK_FALSE(readers.MayOverwrite(0));
  CHECK_FALSE(readers.MayOverwrite(1));
  CHECK(readers.MayOverwrite(3));
  CHECK(readers.MayOverwrite(4));
  CHECK_FALSE(readers.MayOverwrite(kNetworkInput));
}

TEST_CASE("Layer readers: only evaluation overwrites a ReLU's output", "[worker][training]") {
  const ModelPlan plan = PlanOf({
      Layer(LayerKind::kRelu, {kNetworkInput}),
      Layer(LayerKind::kRelu, {0}),
  });
  CHECK_FALSE(LayerReaders(plan, ProgramKind::kTraining).MayOverwrite(0));
  CHECK(LayerReaders(plan, ProgramKind::kEvaluation).MayOverwrite(0));
}

TEST_CASE("Layer readers: dropout is another name for its input where it does nothing",
          "[worker][training]") {
  PlannedLayer dropout = Layer(LayerKind::kDropout, {kNetworkInput});
  dropout.dropout_rate = 0.5f;
  CHECK_FALSE(IsAlias(dropout, ProgramKind::kTraining));
  CHECK(IsAlias(dropout, ProgramKind::kEvaluation));
  dropout.dropout_rate = 0;
  CHECK(IsAlias(dropout, ProgramKind::kTraining));
}

}  // namespace
}  // namespace capstan::worker
