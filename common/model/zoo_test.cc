#include "common/model/zoo.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "common/model/plan_model.h"
#include "common/testing/status_matchers.h"

namespace capstan {
namespace {

ModelPlan PlanZoo(const std::string& name, SampleShape input, int64_t classes) {
  v1::Model model;
  model.set_zoo(name);
  REQUIRE_OK_AND_ASSIGN(ModelPlan plan, PlanModel(model, input, classes));
  return plan;
}

TEST_CASE("Zoo: every model plans for Fashion-MNIST with its published number of parameters",
          "[common][model]") {
  const std::map<std::string, int64_t> expected = {
      {"softmax_regression", 7850},
      {"mlp", 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10},
      // Caffe's LeNet: 520 + 25,050 + 400,500 + 5,010.
      {"lenet", 431080},
  };
  for (const auto& [name, parameters] : expected) {
    INFO(name);
    CHECK(PlanZoo(name, {28, 28, 1}, 10).parameter_count == parameters);
  }
}

TEST_CASE("Zoo: lenet has the shapes of the original", "[common][model]") {
  const ModelPlan plan = PlanZoo("lenet", {28, 28, 1}, 10);
  REQUIRE(plan.layers.size() == 7);
  CHECK(plan.layers[0].out == SampleShape{24, 24, 20});
  CHECK(plan.layers[1].out == SampleShape{12, 12, 20});
  CHECK(plan.layers[2].out == SampleShape{8, 8, 50});
  CHECK(plan.layers[3].out == SampleShape{4, 4, 50});
  CHECK(plan.layers[4].out == SampleShape{1, 1, 500});
  CHECK(plan.layers[6].out == SampleShape{1, 1, 10});
}

TEST_CASE("Zoo: resnet20 for CIFAR-10 has 20 weighted layers on its main path", "[common][model]") {
  const ModelPlan plan = PlanZoo("resnet20", {32, 32, 3}, 10);
  int convolutions = 0, projections = 0, adds = 0;
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.kind == LayerKind::kAdd) ++adds;
    if (layer.kind != LayerKind::kConvolution) continue;
    (layer.kernel == 1 ? projections : convolutions) += 1;
    CHECK_FALSE(layer.has_bias);
  }
  CHECK(convolutions == 19);  // And the fully connected layer.
  CHECK(projections == 2);
  CHECK(adds == 9);
  const PlannedLayer& pool = plan.layers[plan.layers.size() - 2];
  CHECK(pool.in == SampleShape{8, 8, 64});
  // 0.27 M (He et al., table 6) and the two projections with their normalisation.
  CHECK(plan.parameter_count == 269722 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64));
  CHECK(plan.statistics.size() == 2 * 21);
}

TEST_CASE("Zoo: an unknown name lists those that are known", "[common][model]") {
  CHECK_STATUS(
      ExpandZoo("alexnet", 10), absl::StatusCode::kInvalidArgument,
      "model.zoo is \"alexnet\", expected one of lenet, mlp, resnet20, softmax_regression");
  for (const std::string& name : ZooNames()) CHECK(ExpandZoo(name, 10).ok());
}

}  // namespace
}  // namespace capstan
