#include "common/model/zoo.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan {
namespace {

// Images whose shorter side has fewer pixels get the CIFAR form of resnet18 and resnet50.
constexpr int64_t kFullStemMin = 64;

// Appends layers by name; a layer reads the one before it unless inputs are given.
class LayerList {
 public:
  enum class Initial { kDefault, kKaimingFanOut };
  explicit LayerList(Initial initial = Initial::kDefault) : initial_(initial) {}

  v1::Layer& Add(const std::string& name, const std::vector<std::string>& inputs = {}) {
    v1::Layer& layer = layers_.emplace_back();
    layer.set_name(name);
    for (const std::string& input : inputs) layer.add_inputs(input);
    return layer;
  }
  v1::FullyConnected& FullyConnected(const std::string& name, int64_t units) {
    v1::FullyConnected& fully_connected = *Add(name).mutable_fully_connected();
    fully_connected.set_units(static_cast<int32_t>(units));
    return fully_connected;
  }
  void Relu(const std::string& name) { Add(name).mutable_relu(); }
  v1::Pooling& MaxPool(const std::string& name, int kernel) {
    v1::Pooling& pooling = *Add(name).mutable_max_pooling();
    pooling.set_kernel(kernel);
    return pooling;
  }
  v1::Convolution& Convolution(const std::string& name, int filters, int kernel,
                               const std::vector<std::string>& inputs = {}) {
    v1::Convolution& convolution = *Add(name, inputs).mutable_convolution();
    convolution.set_filters(filters);
    convolution.set_kernel(kernel);
    if (initial_ == Initial::kKaimingFanOut)
      convolution.mutable_initial()->mutable_kaiming_fan_out();
    return convolution;
  }
  // Adds a convolution without bias (the normalisation's shift replaces it) that keeps the image's
  // size at stride 1, then batch normalisation.
  void NormalizedConvolution(const std::string& convolution_name,
                             const std::string& normalization_name, int filters, int kernel,
                             int stride, const std::vector<std::string>& inputs = {}) {
    v1::Convolution& convolution = Convolution(convolution_name, filters, kernel, inputs);
    convolution.set_stride(stride);
    convolution.set_padding(kernel / 2);
    convolution.set_bias(false);
    Add(normalization_name).mutable_batch_normalization();
  }
  std::vector<v1::Layer> Take() { return std::move(layers_); }

 private:
  const Initial initial_;  // The initializer of convolutions.
  std::vector<v1::Layer> layers_;
};

std::vector<v1::Layer> SoftmaxRegression(const SampleShape&, int64_t classes) {
  LayerList list;
  list.FullyConnected("fc", classes);
  return list.Take();
}

std::vector<v1::Layer> Mlp(const SampleShape&, int64_t classes) {
  LayerList list;
  list.FullyConnected("fc1", 256);
  list.Relu("relu1");
  list.FullyConnected("fc2", 128);
  list.Relu("relu2");
  list.FullyConnected("fc3", classes);
  return list.Take();
}

std::vector<v1::Layer> Lenet(const SampleShape&, int64_t classes) {
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

// ---------------------------------------------------------------- residual networks

// A block of a residual network adds the output of its convolutions to its input.
struct Block {
  std::string name;
  std::string input;  // A layer's name.
  int filters = 0;
  int stride = 1;
  bool projects = false;  // The shortcut is a 1x1 convolution: the shape changes.
};

// Appends the sum of `name`.bn`last` and the shortcut, and a ReLU; returns the name of the output.
std::string CloseBlock(LayerList& list, const Block& block, int last, int filters_out) {
  const std::string& name = block.name;
  const std::string main = absl::StrCat(name, ".bn", last);
  std::string shortcut = block.input;
  if (block.projects) {
    shortcut = name + ".shortcut_bn";
    list.NormalizedConvolution(name + ".shortcut_conv", shortcut, filters_out, 1, block.stride,
                               {block.input});
  }
  list.Add(name + ".add", {main, shortcut}).mutable_add();
  const std::string output = absl::StrCat(name, ".relu", last);
  list.Relu(output);
  return output;
}

// Appends a block of two 3x3 convolutions; returns the name of its output.
std::string BasicBlock(LayerList& list, const Block& block) {
  const std::string& name = block.name;
  list.NormalizedConvolution(name + ".conv1", name + ".bn1", block.filters, 3, block.stride,
                             {block.input});
  list.Relu(name + ".relu1");
  list.NormalizedConvolution(name + ".conv2", name + ".bn2", block.filters, 3, 1);
  return CloseBlock(list, block, 2, block.filters);
}

// Appends a block of three convolutions: 1x1 to `filters`, 3x3 with the stride (as in v1.5), 1x1 to
// 4 * `filters`. Returns the name of its output.
std::string BottleneckBlock(LayerList& list, const Block& block) {
  const std::string& name = block.name;
  list.NormalizedConvolution(name + ".conv1", name + ".bn1", block.filters, 1, 1, {block.input});
  list.Relu(name + ".relu1");
  list.NormalizedConvolution(name + ".conv2", name + ".bn2", block.filters, 3, block.stride);
  list.Relu(name + ".relu2");
  list.NormalizedConvolution(name + ".conv3", name + ".bn3", 4 * block.filters, 1, 1);
  return CloseBlock(list, block, 3, 4 * block.filters);
}

using MakeBlock = std::string (*)(LayerList& list, const Block& block);

// Appends stages of blocks that read `output`, the list's last layer, then pooling and the fully
// connected layer. The filters double from stage to stage; every stage but the first halves the
// image.
void Stages(LayerList& list, std::string output, const std::vector<int>& blocks, int filters,
            MakeBlock make_block, int64_t classes) {
  const bool widens = make_block == BottleneckBlock;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      output = make_block(list, {.name = absl::StrCat("stage", stage + 1, ".block", block + 1),
                                 .input = output,
                                 .filters = filters << stage,
                                 .stride = stride,
                                 .projects = stride != 1 || (widens && block == 0)});
    }
  }
  list.Add("pool").mutable_global_average_pooling();
  list.FullyConnected("fc", classes);
}

std::vector<v1::Layer> Resnet20(const SampleShape&, int64_t classes) {
  LayerList list;
  list.NormalizedConvolution("conv1", "bn1", 16, 3, 1);
  list.Relu("relu1");
  Stages(list, "relu1", {3, 3, 3}, 16, BasicBlock, classes);
  return list.Take();
}

// Appends the first layers of resnet18 and resnet50; returns the name of their output.
std::string Stem(LayerList& list, const SampleShape& input) {
  const bool full = std::min(input.h, input.w) >= kFullStemMin;
  list.NormalizedConvolution("conv1", "bn1", 64, full ? 7 : 3, full ? 2 : 1);
  list.Relu("relu1");
  if (!full) return "relu1";
  v1::Pooling& pool = list.MaxPool("pool1", 3);
  pool.set_stride(2);
  pool.set_padding(1);
  return "pool1";
}

std::vector<v1::Layer> Resnet18(const SampleShape& input, int64_t classes) {
  LayerList list(LayerList::Initial::kKaimingFanOut);
  Stages(list, Stem(list, input), {2, 2, 2, 2}, 64, BasicBlock, classes);
  return list.Take();
}

std::vector<v1::Layer> Resnet50(const SampleShape& input, int64_t classes) {
  LayerList list(LayerList::Initial::kKaimingFanOut);
  Stages(list, Stem(list, input), {3, 4, 6, 3}, 64, BottleneckBlock, classes);
  return list.Take();
}

// ---------------------------------------------------------------- VGG

std::vector<v1::Layer> Vgg16(const SampleShape&, int64_t classes) {
  LayerList list(LayerList::Initial::kKaimingFanOut);
  const struct {
    int convolutions, filters;
  } groups[] = {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
  int group = 0;
  for (const auto& [convolutions, filters] : groups) {
    ++group;
    for (int i = 1; i <= convolutions; ++i) {
      list.Convolution(absl::StrCat("conv", group, "_", i), filters, 3).set_padding(1);
      list.Relu(absl::StrCat("relu", group, "_", i));
    }
    list.MaxPool(absl::StrCat("pool", group), 2);
  }
  for (const int i : {1, 2}) {
    list.FullyConnected(absl::StrCat("fc", i), 4096).mutable_initial()->set_normal_std(0.01f);
    list.Relu(absl::StrCat("fc", i, "_relu"));
    list.Add(absl::StrCat("dropout", i)).mutable_dropout()->set_rate(0.5f);
  }
  list.FullyConnected("fc3", classes).mutable_initial()->set_normal_std(0.01f);
  return list.Take();
}

struct ZooEntry {
  const char* name;
  std::vector<v1::Layer> (*layers)(const SampleShape& input, int64_t classes);
};

constexpr ZooEntry kZoo[] = {
    {"lenet", Lenet},       {"mlp", Mlp},           {"resnet18", Resnet18},
    {"resnet20", Resnet20}, {"resnet50", Resnet50}, {"softmax_regression", SoftmaxRegression},
    {"vgg16", Vgg16},
};

}  // namespace

std::vector<std::string> ZooNames() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : kZoo) names.push_back(entry.name);
  return names;
}

absl::StatusOr<std::vector<v1::Layer>> ExpandZoo(absl::string_view name, const SampleShape& input,
                                                 int64_t classes) {
  for (const ZooEntry& entry : kZoo) {
    if (name == entry.name) return entry.layers(input, classes);
  }
  return absl::InvalidArgumentError(absl::StrCat("model.zoo is \"", name, "\", expected one of ",
                                                 absl::StrJoin(ZooNames(), ", ")));
}

}  // namespace capstan
