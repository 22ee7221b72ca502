#include "common/model/plan_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/model/zoo.h"
#include "common/status/status_macros.h"
#include "common/types/job_limits.h"

namespace capstan {
namespace {

// Returns a * b for a, b >= 0, or `limit` + 1 if that is smaller. Never overflows.
int64_t MultiplyUpTo(int64_t a, int64_t b, int64_t limit) {
  if (a == 0 || b == 0) return 0;
  return a > limit / b ? limit + 1 : a * b;
}

// Empty: the layer has no kind.
std::string KindName(const v1::Layer& layer) {
  const auto* const kind = LayerKindField(layer);
  return kind == nullptr ? "" : kind->name();
}

Initial Constant(float value) { return {Initial::Kind::kConstant, value}; }
Initial UniformByFanIn(int64_t fan_in) {
  return {Initial::Kind::kUniform,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)))};
}
Initial KaimingNormal(int64_t fan_out) {
  return {Initial::Kind::kNormal,
          static_cast<float>(std::sqrt(2.0 / static_cast<double>(fan_out)))};
}

// Turns layers into planned layers one after the other. `name_`, `kind_` and `layer_` belong to the
// layer being planned, which errors name.
class Planner {
 public:
  Planner(SampleShape input, int64_t classes, PlannedLoss loss) {
    plan_.input = input;
    plan_.classes = classes;
    plan_.loss = std::move(loss);
  }

  absl::Status AddLayer(int index, const v1::Layer& layer) {
    CAPSTAN_RETURN_IF_ERROR(CheckName(index, layer));
    name_ = layer.name();
    kind_ = KindName(layer);
    layer_ = PlannedLayer{};
    layer_.name = name_;
    layer_.kind = layer.kind_case();
    CAPSTAN_RETURN_IF_ERROR(ResolveInputs(index, layer));
    layer_.in = OutputOf(layer_.inputs[0]);
    layer_.out = layer_.in;
    CAPSTAN_RETURN_IF_ERROR(PlanKind(layer));
    CAPSTAN_RETURN_IF_ERROR(CheckOutputSize());
    index_of_[name_] = index;
    read_.push_back(false);
    plan_.layers.push_back(std::move(layer_));
    return absl::OkStatus();
  }

  absl::StatusOr<ModelPlan> Finish() {
    const PlannedLayer& last = plan_.layers.back();
    for (size_t i = 0; i + 1 < plan_.layers.size(); ++i) {
      if (read_[i]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "layer \"", plan_.layers[i].name, "\": no layer reads its output, expected that of \"",
          last.name, "\" (the last layer) to be the only one unread"));
    }
    if (last.out != SampleShape{1, 1, plan_.classes}) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer \"", last.name, "\" is the last: its output is ", ToString(last.out),
                       ", expected ", plan_.classes,
                       plan_.loss.of_classes() ? ", one value a class"
                                               : ", one value for each number of a label"));
    }
    if (plan_.parameters.empty()) {
      return absl::InvalidArgumentError(
          "model.layers: no layer has parameters, expected at least one that can be trained");
    }
    return std::move(plan_);
  }

 private:
  absl::Status CheckName(int index, const v1::Layer& layer) const {
    const std::string& name = layer.name();
    if (!IsLayerName(name)) {
      return absl::InvalidArgumentError(absl::StrCat("model.layers[", index, "].name is \"", name,
                                                     "\", expected 1 to ", kLayerNameBytesMax,
                                                     " letters, digits, '_', '.' or '-'"));
    }
    if (name == "input") {
      return absl::InvalidArgumentError(
          absl::StrCat("model.layers[", index,
                       "].name is \"input\", which names the network's input; expected another"));
    }
    const auto found = index_of_.find(name);
    if (found != index_of_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("model.layers[", index, "].name is \"", name,
                                                     "\", as of layer ", found->second,
                                                     ", expected a name that no other layer has"));
    }
    return absl::OkStatus();
  }

  // Returns an error about the layer being planned.
  template <typename... Args>
  absl::Status Error(const Args&... args) const {
    return absl::InvalidArgumentError(absl::StrCat("layer \"", name_, "\": ", args...));
  }
  // Returns an error such as "layer "conv1": convolution.kernel is 0, expected at least 1".
  template <typename... Args>
  absl::Status FieldError(absl::string_view field, const Args&... args) const {
    return Error(kind_, ".", field, " is ", args...);
  }
  absl::Status CheckAtLeast(absl::string_view field, int64_t value, int64_t minimum) const {
    if (value >= minimum) return absl::OkStatus();
    return FieldError(field, value, ", expected at least ", minimum);
  }

  absl::Status ResolveInputs(int index, const v1::Layer& layer) {
    const int expected = layer.has_add() ? 2 : 1;
    if (layer.inputs_size() == 0 && expected == 1) {
      layer_.inputs = {index - 1};  // It is kNetworkInput for the first layer.
    } else if (layer.inputs_size() != expected) {
      return Error("inputs has ", layer.inputs_size(), " names, expected ", expected, " for ",
                   kind_.empty() ? "a layer" : kind_);
    }
    for (int i = 0; i < layer.inputs_size(); ++i) {
      const std::string& input = layer.inputs(i);
      const auto found = index_of_.find(input);
      if (input != "input" && found == index_of_.end()) {
        return Error("inputs[", i, "] is \"", input,
                     "\", expected \"input\" or the name of a layer before it");
      }
      layer_.inputs.push_back(input == "input" ? kNetworkInput : found->second);
    }
    for (const int input : layer_.inputs) {
      if (input != kNetworkInput) read_[static_cast<size_t>(input)] = true;
    }
    return absl::OkStatus();
  }

  const SampleShape& OutputOf(int index) const {
    return index == kNetworkInput ? plan_.input : plan_.layers[static_cast<size_t>(index)].out;
  }

  absl::Status PlanKind(const v1::Layer& layer) {
    switch (layer.kind_case()) {
      case v1::Layer::kConvolution:
        return PlanConvolution(layer.convolution());
      case v1::Layer::kMaxPooling:
        return PlanPooling(layer.max_pooling());
      case v1::Layer::kAveragePooling:
        return PlanPooling(layer.average_pooling());
      case v1::Layer::kFullyConnected:
        return PlanFullyConnected(layer.fully_connected());
      case v1::Layer::kBatchNormalization:
        return PlanBatchNormalization(layer.batch_normalization());
      case v1::Layer::kAdd:
        return PlanAdd(layer);
      case v1::Layer::kDropout:
        return PlanDropout(layer.dropout());
      case v1::Layer::kGlobalAveragePooling:
        return PlanGlobalAveragePooling();
      case v1::Layer::kEmbedding:
        return PlanEmbedding(layer.embedding());
      case v1::Layer::kLayerNormalization:
        return PlanLayerNormalization(layer.layer_normalization());
      case v1::Layer::kRmsNormalization:
        return PlanScale(layer.rms_normalization());
      case v1::Layer::kRelu:
        return absl::OkStatus();
      case v1::Layer::kGelu:
      case v1::Layer::kSilu:
      case v1::Layer::kTanh:
      case v1::Layer::kSigmoid:
        layer_.activation = kind_;
        return absl::OkStatus();
      case v1::Layer::kFlatten:
        layer_.out = {1, 1, layer_.in.count()};
        return absl::OkStatus();
      case v1::Layer::KIND_NOT_SET:
        break;
    }
    return Error("it has no kind, expected one of ", LayerKindNames());
  }

  // Sets the window's fields and the output's height and width.
  absl::Status PlanWindow(int64_t kernel, int64_t stride, int64_t padding) {
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("kernel", kernel, 1));
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("stride", stride, 1));
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("padding", padding, 0));
    const int64_t h = layer_.in.h + 2 * padding, w = layer_.in.w + 2 * padding;
    if (kernel > h || kernel > w) {
      return FieldError("kernel", kernel, ", expected at most ", std::min(h, w), ": its input is ",
                        ToString(layer_.in), " with padding ", padding);
    }
    if (padding >= kernel) {
      return FieldError("padding", padding, ", expected less than the kernel, ", kernel);
    }
    layer_.kernel = kernel;
    layer_.stride = stride;
    layer_.padding = padding;
    layer_.out.h = (h - kernel) / stride + 1;
    layer_.out.w = (w - kernel) / stride + 1;
    return absl::OkStatus();
  }

  struct InitialPair {
    Initial weight, bias;
  };
  absl::StatusOr<InitialPair> InitialOf(const v1::InitialWeights& spec, int64_t fan_in,
                                        int64_t fan_out) const {
    switch (spec.kind_case()) {
      case v1::InitialWeights::kKaimingFanOut:
        return InitialPair{KaimingNormal(fan_out), Constant(0)};
      case v1::InitialWeights::kNormalStd:
        if (!(spec.normal_std() >= 0) || !std::isfinite(spec.normal_std())) {
          return FieldError("initial.normal_std", spec.normal_std(),
                            ", expected a finite number of at least 0");
        }
        return InitialPair{{Initial::Kind::kNormal, spec.normal_std()}, Constant(0)};
      case v1::InitialWeights::KIND_NOT_SET:
        break;
    }
    return InitialPair{UniformByFanIn(fan_in), UniformByFanIn(fan_in)};
  }

  absl::Status PlanConvolution(const v1::Convolution& spec) {
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("filters", spec.filters(), 1));
    const int64_t stride = spec.has_stride() ? spec.stride() : 1;
    CAPSTAN_RETURN_IF_ERROR(PlanWindow(spec.kernel(), stride, spec.padding()));
    layer_.out.c = spec.filters();
    const int64_t k = spec.kernel(), c = layer_.in.c;
    const int64_t fan_in = MultiplyUpTo(k * k, c, kTableElementsMax);
    const int64_t fan_out = MultiplyUpTo(k * k, spec.filters(), kTableElementsMax);
    CAPSTAN_ASSIGN_OR_RETURN(const InitialPair initial, InitialOf(spec.initial(), fan_in, fan_out));
    CAPSTAN_ASSIGN_OR_RETURN(layer_.weight,
                             AddParameter("weight", {spec.filters(), k, k, c}, initial.weight));
    return AddBias(spec.has_bias() ? spec.bias() : true, spec.filters(), initial.bias);
  }

  absl::Status PlanPooling(const v1::Pooling& spec) {
    return PlanWindow(spec.kernel(), spec.has_stride() ? spec.stride() : spec.kernel(),
                      spec.padding());
  }

  absl::Status PlanFullyConnected(const v1::FullyConnected& spec) {
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("units", spec.units(), 1));
    const int64_t inputs = layer_.in.count();
    layer_.out = {1, 1, spec.units()};
    CAPSTAN_ASSIGN_OR_RETURN(const InitialPair initial,
                             InitialOf(spec.initial(), inputs, spec.units()));
    CAPSTAN_ASSIGN_OR_RETURN(layer_.weight,
                             AddParameter("weight", {spec.units(), inputs}, initial.weight));
    return AddBias(spec.has_bias() ? spec.bias() : true, spec.units(), initial.bias);
  }

  absl::Status PlanBatchNormalization(const v1::BatchNormalization& spec) {
    const float momentum = spec.has_momentum() ? spec.momentum() : 0.1f;
    if (!(momentum > 0 && momentum <= 1)) {
      return FieldError("momentum", momentum, ", expected more than 0 and at most 1");
    }
    CAPSTAN_RETURN_IF_ERROR(PlanScaleAndShift(spec));
    const int64_t c = layer_.in.c;
    CAPSTAN_ASSIGN_OR_RETURN(layer_.running_mean,
                             AddStatistic("running_mean", c, Constant(0), momentum));
    CAPSTAN_ASSIGN_OR_RETURN(layer_.running_variance,
                             AddStatistic("running_variance", c, Constant(1), momentum));
    return absl::OkStatus();
  }

  absl::Status PlanLayerNormalization(const v1::LayerNormalization& spec) {
    if (layer_.in.c < 2) {
      return Error(kind_, " reads ", ToString(layer_.in),
                   ", expected 2 channels or more: one alone would always become 0");
    }
    return PlanScaleAndShift(spec);
  }

  // Plans what the normalisations have in common: epsilon, and a scale for each channel.
  template <typename Normalization>
  absl::Status PlanScale(const Normalization& spec) {
    const float epsilon = spec.has_epsilon() ? spec.epsilon() : 1e-5f;
    layer_.epsilon = epsilon;
    if (!(epsilon > 0) || !std::isfinite(epsilon)) {
      return FieldError("epsilon", epsilon, ", expected a finite number more than 0");
    }
    CAPSTAN_ASSIGN_OR_RETURN(layer_.weight, AddParameter("weight", {layer_.in.c}, Constant(1)));
    return absl::OkStatus();
  }
  template <typename Normalization>
  absl::Status PlanScaleAndShift(const Normalization& spec) {
    CAPSTAN_RETURN_IF_ERROR(PlanScale(spec));
    CAPSTAN_ASSIGN_OR_RETURN(layer_.bias, AddParameter("bias", {layer_.in.c}, Constant(0)));
    return absl::OkStatus();
  }

  absl::Status PlanAdd(const v1::Layer& layer) {
    const SampleShape& other = OutputOf(layer_.inputs[1]);
    if (layer_.in == other) return absl::OkStatus();
    return Error("adds \"", layer.inputs(0), "\" of ", ToString(layer_.in), " and \"",
                 layer.inputs(1), "\" of ", ToString(other), ", expected one shape");
  }

  absl::Status PlanDropout(const v1::Dropout& spec) {
    layer_.dropout_rate = spec.rate();
    if (spec.rate() >= 0 && spec.rate() < 1) return absl::OkStatus();
    return FieldError("rate", spec.rate(), ", expected at least 0 and less than 1");
  }

  absl::Status PlanGlobalAveragePooling() {
    if (layer_.in.h != layer_.in.w) {
      return Error(kind_, " reads ", ToString(layer_.in),
                   ", expected an image as high as it is wide");
    }
    layer_.kernel = layer_.in.h;
    layer_.out = {1, 1, layer_.in.c};
    return absl::OkStatus();
  }

  absl::Status PlanEmbedding(const v1::Embedding& spec) {
    if (layer_.inputs[0] != kNetworkInput) {
      return Error("embedding reads \"", plan_.layers[static_cast<size_t>(layer_.inputs[0])].name,
                   "\", expected \"input\": row numbers have no gradient");
    }
    if (spec.rows() < 1 || spec.rows() > kEmbeddingRowsMax) {
      return FieldError("rows", spec.rows(), ", expected 1 to ", kEmbeddingRowsMax);
    }
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("dim", spec.dim(), 1));
    layer_.rows = spec.rows();
    layer_.out = {1, 1, MultiplyUpTo(layer_.in.count(), spec.dim(), kArrayElementsMax)};
    CAPSTAN_ASSIGN_OR_RETURN(layer_.weight, AddParameter("weight", {spec.rows(), spec.dim()},
                                                         {Initial::Kind::kNormal, 1.0f}));
    return absl::OkStatus();
  }

  absl::Status AddBias(bool has_bias, int64_t count, Initial initial) {
    layer_.has_bias = has_bias;
    if (!has_bias) return absl::OkStatus();
    CAPSTAN_ASSIGN_OR_RETURN(layer_.bias, AddParameter("bias", {count}, initial));
    return absl::OkStatus();
  }

  absl::StatusOr<int> AddParameter(const char* suffix, std::vector<int64_t> shape,
                                   Initial initial) {
    return AddTensor(suffix, std::move(shape), initial, 0.0f, plan_.parameters,
                     plan_.parameter_count);
  }
  absl::StatusOr<int> AddStatistic(const char* suffix, int64_t count, Initial initial,
                                   float momentum) {
    return AddTensor(suffix, {count}, initial, momentum, plan_.statistics, plan_.statistic_count);
  }

  absl::StatusOr<int> AddTensor(const char* suffix, std::vector<int64_t> shape, Initial initial,
                                float momentum, std::vector<PlannedTensor>& table,
                                int64_t& table_count) const {
    int64_t count = 1;
    for (const int64_t d : shape) count = MultiplyUpTo(count, d, kArrayElementsMax);
    if (count > kArrayElementsMax) {
      return Error("its ", suffix, " of ", absl::StrJoin(shape, "x"),
                   " elements is too large, expected at most ", kArrayElementsMax);
    }
    if (count > kTableElementsMax - table_count) {
      return Error("its ", suffix, " makes the model larger than ", kTableElementsMax,
                   " elements, the most that a table may hold");
    }
    PlannedTensor tensor;
    tensor.name = absl::StrCat(name_, ".", suffix);
    tensor.shape = std::move(shape);
    tensor.offset = table_count;
    tensor.count = count;
    tensor.initial = initial;
    tensor.momentum = momentum;
    table_count += count;
    table.push_back(std::move(tensor));
    return static_cast<int>(table.size()) - 1;
  }

  absl::Status CheckOutputSize() const {
    const SampleShape& out = layer_.out;
    const int64_t pixels = MultiplyUpTo(out.h, out.w, kArrayElementsMax);
    if (MultiplyUpTo(pixels, out.c, kArrayElementsMax) <= kArrayElementsMax)
      return absl::OkStatus();
    return Error("its output of ", ToString(out),
                 " values a sample is too large, expected at most ", kArrayElementsMax);
  }

  ModelPlan plan_;
  std::map<std::string, int> index_of_;  // Index of each layer planned so far.
  std::vector<bool> read_;               // Whether a later layer reads this one.
  std::string name_, kind_;
  PlannedLayer layer_;
};

absl::Status CheckInput(const SampleShape& input) {
  if (input.h >= 1 && input.w >= 1 && input.c >= 1) {
    const int64_t pixels = MultiplyUpTo(input.h, input.w, kArrayElementsMax);
    if (MultiplyUpTo(pixels, input.c, kArrayElementsMax) <= kArrayElementsMax)
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("input image is ", input.h, "x", input.w, "x", input.c,
                   ", expected sizes of at least 1 and at most ", kArrayElementsMax, " values"));
}

}  // namespace

bool IsLayerName(absl::string_view name) {
  return !name.empty() && name.size() <= kLayerNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
         });
}

const google::protobuf::FieldDescriptor* LayerKindField(const v1::Layer& layer) {
  return v1::Layer::descriptor()->FindFieldByNumber(layer.kind_case());
}

std::string LayerKindNames() {
  const google::protobuf::OneofDescriptor& kinds = *v1::Layer::descriptor()->oneof_decl(0);
  std::vector<std::string> names;
  for (int i = 0; i < kinds.field_count(); ++i) names.push_back(kinds.field(i)->name());
  return absl::StrJoin(names, ", ");
}

std::string ToString(const SampleShape& shape) {
  if (shape.h == 1 && shape.w == 1) return absl::StrCat(shape.c);
  return absl::StrCat(shape.h, "x", shape.w, "x", shape.c);
}

PlannedLoss PlanLoss(const v1::Model::Loss& loss) {
  using Kind = PlannedLoss::Kind;
  switch (loss.kind_case()) {
    case v1::Model::Loss::kSquared:
      return {.kind = Kind::kSquared};
    case v1::Model::Loss::kHuber:
      return {.kind = Kind::kHuber,
              .parameter = loss.huber().has_delta() ? loss.huber().delta() : 1.0f};
    case v1::Model::Loss::kQuantile:
      return {.kind = Kind::kQuantile,
              .parameter = loss.quantile().has_q() ? loss.quantile().q() : 0.5f};
    case v1::Model::Loss::kSigmoidCrossEntropy:
      return {.kind = Kind::kSigmoid};
    case v1::Model::Loss::kSoftmaxCrossEntropy:
    case v1::Model::Loss::KIND_NOT_SET:
      break;
  }
  return {};
}

absl::StatusOr<ModelPlan> PlanModel(const v1::Model& model, SampleShape input, int64_t classes) {
  CAPSTAN_RETURN_IF_ERROR(CheckInput(input));
  PlannedLoss loss = PlanLoss(model.loss());
  if (!loss.of_classes() && (classes < 1 || classes > kClassesMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.loss: labels have ", classes, " numbers a sample, expected 1 to ", kClassesMax));
  }
  if (loss.of_classes() && (classes < kClassesMin || classes > kClassesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("model.classes is ", classes, ", expected ",
                                                   kClassesMin, " to ", kClassesMax));
  }
  if (model.zoo().empty() == model.layers().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model has ", model.zoo().empty() ? "neither zoo nor layers" : "both zoo and layers",
        ", expected exactly one of them"));
  }
  std::vector<v1::Layer> layers(model.layers().begin(), model.layers().end());
  if (!model.zoo().empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(layers, ExpandZoo(model.zoo(), input, classes));
  }
  if (layers.size() > kLayersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.layers has ", layers.size(), " layers, expected at most ", kLayersMax));
  }
  Planner planner(input, classes, std::move(loss));
  for (size_t i = 0; i < layers.size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(planner.AddLayer(static_cast<int>(i), layers[i]));
  }
  return planner.Finish();
}

}  // namespace capstan
