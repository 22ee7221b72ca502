#include "common/model/zoo.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan {
namespace {

// Appends layers by name; a layer reads the one before it unless inputs are given.
class LayerList {
 public:
  v1::Layer& Add(const std::string& name, const std::vector<std::string>& inputs = {}) {
    v1::Layer& layer = layers_.emplace_back();
    layer.set_name(name);
    for (const std::string& input : inputs) layer.add_inputs(input);
    return layer;
  }
  void FullyConnected(const std::string& name, int64_t units) {
    Add(name).mutable_fully_connected()->set_units(static_cast<int32_t>(units));
  }
  void Relu(const std::string& name) { Add(name).mutable_relu(); }
  void MaxPool(const std::string& name, int kernel) {
    Add(name).mutable_max_pooling()->set_kernel(kernel);
  }
  void Convolution(const std::string& name, int filters, int kernel) {
    v1::Convolution& convolution = *Add(name).mutable_convolution();
    convolution.set_filters(filters);
    convolution.set_kernel(kernel);
  }
  // A convolution without bias (the normalisation's shift takes its part) that keeps the image's
  // size at stride 1, then batch normalisation.
  void NormalizedConvolution(const std::string& convolution_name,
                             const std::string& normalization_name, int filters, int kernel,
                             int stride, const std::vector<std::string>& inputs = {}) {
    v1::Convolution& convolution = *Add(convolution_name, inputs).mutable_convolution();
    convolution.set_filters(filters);
    convolution.set_kernel(kernel);
    convolution.set_stride(stride);
    convolution.set_padding(kernel / 2);
    convolution.set_bias(false);
    Add(normalization_name).mutable_batch_normalization();
  }
  std::vector<v1::Layer> Take() { return std::move(layers_); }

 private:
  std::vector<v1::Layer> layers_;
};

std::vector<v1::Layer> SoftmaxRegression(int64_t classes) {
  LayerList list;
  list.FullyConnected("fc", classes);
  return list.Take();
}

std::vector<v1::Layer> Mlp(int64_t classes) {
  LayerList list;
  list.FullyConnected("fc1", 256);
  list.Relu("relu1");
  list.FullyConnected("fc2", 128);
  list.Relu("relu2");
  list.FullyConnected("fc3", classes);
  return list.Take();
}

std::vector<v1::Layer> Lenet(int64_t classes) {
  LayerList list;
  list.Convolution("conv1", 20, 5);
  list.MaxPool("pool1", 2);
  list.Convolution("conv2", 50, 5);
  list.MaxPool("pool2", 2);
  list.FullyConnected("fc1", 500);
  list.Relu("relu1");
  list.FullyConnected("fc2", classes);
  return list.Take();
}

// Two 3x3 convolutions and a shortcut around them; returns the name of the block's output.
std::string ResidualBlock(LayerList& list, const std::string& name, const std::string& input,
                          int filters, int stride) {
  list.NormalizedConvolution(name + ".conv1", name + ".bn1", filters, 3, stride, {input});
  list.Relu(name + ".relu1");
  list.NormalizedConvolution(name + ".conv2", name + ".bn2", filters, 3, 1);
  std::string shortcut = input;
  if (stride != 1) {
    shortcut = name + ".shortcut_bn";
    list.NormalizedConvolution(name + ".shortcut_conv", shortcut, filters, 1, stride, {input});
  }
  list.Add(name + ".add", {name + ".bn2", shortcut}).mutable_add();
  list.Relu(name + ".relu2");
  return name + ".relu2";
}

std::vector<v1::Layer> Resnet20(int64_t classes) {
  LayerList list;
  list.NormalizedConvolution("conv1", "bn1", 16, 3, 1);
  list.Relu("relu1");
  std::string output = "relu1";
  for (int stage = 1; stage <= 3; ++stage) {
    for (int block = 1; block <= 3; ++block) {
      const int stride = stage > 1 && block == 1 ? 2 : 1;
      output = ResidualBlock(list, absl::StrCat("stage", stage, ".block", block), output,
                             8 << stage, stride);
    }
  }
  list.Add("pool").mutable_global_average_pooling();
  list.FullyConnected("fc", classes);
  return list.Take();
}

struct ZooEntry {
  const char* name;
  std::vector<v1::Layer> (*layers)(int64_t classes);
};

constexpr ZooEntry kZoo[] = {
    {"lenet", Lenet},
    {"mlp", Mlp},
    {"resnet20", Resnet20},
    {"softmax_regression", SoftmaxRegression},
};

}  // namespace

std::vector<std::string> ZooNames() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : kZoo) names.push_back(entry.name);
  return names;
}

absl::StatusOr<std::vector<v1::Layer>> ExpandZoo(absl::string_view name, int64_t classes) {
  for (const ZooEntry& entry : kZoo) {
    if (name == entry.name) return entry.layers(classes);
  }
  return absl::InvalidArgumentError(absl::StrCat("model.zoo is \"", name, "\", expected one of ",
                                                 absl::StrJoin(ZooNames(), ", ")));
}

}  // namespace capstan
