#include "common/model/zoo.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>

#include "common/model/plan_model.h"
#include "common/testing/status_matchers.h"

namespace capstan::zoo_test {
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
    if (layer.kind == v1::Layer::kAdd) ++adds;
    if (layer.kind != v1::Layer::kConvolution) continue;
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

struct Published {
  const char* name;
  int64_t parameters;  // The count in torchvision's model with 1000 classes.
  int64_t statistics;  // Batch-norm means and variances.
};

TEST_CASE("Zoo: ImageNet models have torchvision's number of parameters", "[common][model]") {
  const Published published[] = {{"resnet18", 11'689'512, 2 * 4800},
                                 {"resnet50", 25'557'032, 2 * 26'560},
                                 {"vgg16", 138'357'544, 0}};
  for (const Published& model : published) {
    INFO(model.name);
    const ModelPlan plan = PlanZoo(model.name, {224, 224, 3}, 1000);
    CHECK(plan.parameter_count == model.parameters);
    CHECK(plan.statistic_count == model.statistics);
  }
}

const PlannedLayer& LayerOf(const ModelPlan& plan, const std::string& name) {
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.name == name) return layer;
  }
  FAIL("no layer " << name);
  return plan.layers.front();
}

TEST_CASE("Zoo: ImageNet ResNets halve the image five times, resnet50 in its 3x3 convolutions",
          "[common][model]") {
  const ModelPlan plan = PlanZoo("resnet50", {224, 224, 3}, 1000);
  CHECK(LayerOf(plan, "conv1").out == SampleShape{112, 112, 64});
  CHECK(LayerOf(plan, "pool1").out == SampleShape{56, 56, 64});
  CHECK(LayerOf(plan, "stage1.block1.shortcut_bn").out == SampleShape{56, 56, 256});
  CHECK(LayerOf(plan, "stage2.block1.conv1").out == SampleShape{56, 56, 128});
  CHECK(LayerOf(plan, "stage2.block1.conv2").out == SampleShape{28, 28, 128});
  CHECK(LayerOf(plan, "stage4.block3.add").out == SampleShape{7, 7, 2048});
  const ModelPlan small = PlanZoo("resnet18", {64, 64, 3}, 1000);
  CHECK(LayerOf(small, "stage4.block2.add").out == SampleShape{2, 2, 512});
}

TEST_CASE("Zoo: images below 64 pixels have the CIFAR form of ResNets", "[common][model]") {
  const ModelPlan plan = PlanZoo("resnet18", {32, 32, 3}, 10);
  CHECK(LayerOf(plan, "conv1").kernel == 3);
  CHECK(LayerOf(plan, "stage1.block1.conv1").in == SampleShape{32, 32, 64});
  CHECK(LayerOf(plan, "stage4.block2.add").out == SampleShape{4, 4, 512});
  CHECK(plan.parameter_count == 11'173'962);  // The usual PyTorch port for CIFAR-10 has as many.
  CHECK(LayerOf(PlanZoo("resnet50", {28, 28, 1}, 10), "conv1").out == SampleShape{28, 28, 64});
  CHECK(LayerOf(PlanZoo("resnet18", {63, 64, 3}, 10), "conv1").kernel == 3);
}

TEST_CASE("Zoo: vgg16 pools to 7x7x512 at 224x224, and drops out twice", "[common][model]") {
  const ModelPlan plan = PlanZoo("vgg16", {224, 224, 3}, 1000);
  CHECK(LayerOf(plan, "pool5").out == SampleShape{7, 7, 512});
  CHECK(LayerOf(plan, "fc1").in.count() == 25'088);
  CHECK(LayerOf(plan, "dropout1").dropout_rate == 0.5f);
  CHECK(LayerOf(plan, "dropout2").dropout_rate == 0.5f);
  CHECK(LayerOf(PlanZoo("vgg16", {32, 32, 3}, 10), "fc1").in.count() == 512);
}

const Initial& InitialOf(const ModelPlan& plan, int parameter) {
  return plan.parameters[static_cast<size_t>(parameter)].initial;
}

TEST_CASE("Zoo: ImageNet models start with torchvision's values", "[common][model]") {
  const ModelPlan resnet = PlanZoo("resnet50", {224, 224, 3}, 1000);
  const PlannedLayer& stem = LayerOf(resnet, "conv1");
  CHECK(InitialOf(resnet, stem.weight).kind == Initial::Kind::kNormal);
  CHECK(InitialOf(resnet, stem.weight).value == Approx(std::sqrt(2.0 / (64 * 7 * 7))));
  const PlannedLayer& last = LayerOf(resnet, "stage4.block3.conv3");
  CHECK(InitialOf(resnet, last.weight).value == Approx(std::sqrt(2.0 / 2048)));
  const PlannedLayer& norm = LayerOf(resnet, "stage4.block3.bn3");
  CHECK(InitialOf(resnet, norm.weight).value == 1.0f);
  CHECK(InitialOf(resnet, norm.bias).value == 0.0f);
  CHECK(norm.epsilon == 1e-5f);
  CHECK(resnet.statistics[static_cast<size_t>(norm.running_mean)].momentum == 0.1f);
  const PlannedLayer& fc = LayerOf(resnet, "fc");
  CHECK(InitialOf(resnet, fc.weight).kind == Initial::Kind::kUniform);
  CHECK(InitialOf(resnet, fc.bias).value == Approx(1 / std::sqrt(2048.0)));

  const ModelPlan vgg = PlanZoo("vgg16", {224, 224, 3}, 1000);
  const PlannedLayer& first = LayerOf(vgg, "conv1_1");
  CHECK(first.has_bias);
  CHECK(InitialOf(vgg, first.weight).value == Approx(std::sqrt(2.0 / (64 * 3 * 3))));
  CHECK(InitialOf(vgg, first.bias).kind == Initial::Kind::kConstant);
  const PlannedLayer& fc3 = LayerOf(vgg, "fc3");
  CHECK(InitialOf(vgg, fc3.weight).kind == Initial::Kind::kNormal);
  CHECK(InitialOf(vgg, fc3.weight).value == 0.01f);
  CHECK(InitialOf(vgg, fc3.bias).value == 0.0f);
}

TEST_CASE("Zoo: an unknown name lists those that are known", "[common][model]") {
  CHECK_STATUS(ExpandZoo("alexnet", {224, 224, 3}, 10), absl::StatusCode::kInvalidArgument,
               "model.zoo is \"alexnet\", expected one of lenet, mlp, resnet18, resnet20, "
               "resnet50, softmax_regression, vgg16");
  for (const std::string& name : ZooNames()) CHECK(ExpandZoo(name, {32, 32, 3}, 10).ok());
}

}  // namespace
}  // namespace capstan::zoo_test
