#include "worker/training/program.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "worker/training/arena_planner.h"
#include "worker/training/layer_readers.h"

namespace capstan::worker {
namespace {

using kernels::DataType;
using kernels::OpDesc;
using kernels::OpKind;

constexpr int kNetworkInput = -1;

class Builder {
 public:
  Builder(const ModelPlan& plan, int64_t n, ProgramKind kind, DataType tensors)
      : plan_(plan),
        kind_(kind),
        tensors_(tensors),
        readers_(plan, kind == ProgramKind::kTraining),
        values_(plan.layers.size()) {
    program_.n = n;
  }

  absl::StatusOr<Program> Build() {
    CAPSTAN_RETURN_IF_ERROR(CheckSizes());
    CAPSTAN_RETURN_IF_ERROR(CheckTypes());
    for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i) Forward(i);
    Loss();
    if (kind_ == ProgramKind::kTraining) Backward();
    KeepResults();
    PlaceBuffers();
    return std::move(program_);
  }

 private:
  absl::Status CheckSizes() const {
    const int64_t n = program_.n;
    for (const PlannedLayer& layer : plan_.layers) {
      const int64_t values = std::max(layer.in.count(), layer.out.count());
      if (values <= kArrayElementsMax / n) continue;
      return absl::ResourceExhaustedError(absl::StrCat(
          "layer \"", layer.name, "\": a batch of ", n, " needs ", n, " x ", values,
          " values, expected at most ", kArrayElementsMax, ": take a smaller batch_size"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckTypes() const {
    if (tensors_ == DataType::kFloat32) return absl::OkStatus();
    for (const PlannedLayer& layer : plan_.layers) {
      if (layer.kind != LayerKind::kEmbedding) continue;
      return absl::UnimplementedError(
          absl::StrCat("layer \"", layer.name,
                       "\": an embedding computes with fp32 or TF32, expected one of them"));
    }
    return absl::OkStatus();
  }

  // ------------------------------------------------------------- operands and steps

  Operand NewBuffer(int64_t count, DataType dtype = DataType::kFloat32) {
    buffers_.push_back({count * kernels::BytesOf(dtype), static_cast<int>(step_count_), -1});
    uses_.push_back(0);
    Operand operand;
    operand.count = count;
    operand.dtype = dtype;
    operand.buffer = static_cast<int>(buffers_.size()) - 1;
    return operand;
  }
  Operand NewActivation(const SampleShape& shape) {
    return NewBuffer(program_.n * shape.count(), tensors_);
  }
  static Operand InPlace(Place place, int64_t element, int64_t count,
                         DataType dtype = DataType::kFloat32) {
    Operand operand;
    operand.place = place;
    operand.offset = element * kernels::BytesOf(dtype);
    operand.count = count;
    operand.dtype = dtype;
    return operand;
  }
  Operand Labels() const { return InPlace(Place::kLabels, 0, program_.n, DataType::kInt32); }
  Operand Value(int layer) const {
    if (layer != kNetworkInput) return values_[layer];
    return InPlace(Place::kImages, 0, program_.n * plan_.input.count(), tensors_);
  }
  // Parameter `index` of the plan, or its gradient.
  Operand Parameter(int index, Place place = Place::kParameters) const {
    const PlannedTensor& tensor = plan_.parameters[index];
    return InPlace(place, tensor.offset, tensor.count);
  }
  Operand Weight(int index) const {
    const PlannedTensor& tensor = plan_.parameters[index];
    return InPlace(Place::kWeights, tensor.offset, tensor.count, tensors_);
  }
  Operand Gradient(int index) const { return Parameter(index, Place::kGradient); }
  Operand Statistic(int index, Place place = Place::kStatistics) const {
    const PlannedTensor& tensor = plan_.statistics[index];
    return InPlace(place, tensor.offset, tensor.count);
  }

  void Touch(const Operand& operand) {
    if (operand.buffer >= 0) buffers_[operand.buffer].last = static_cast<int>(step_count_);
  }
  void Add(std::vector<Step>& steps, int layer, const OpDesc& desc, std::vector<Operand> inputs,
           std::vector<Operand> outputs) {
    for (const Operand& operand : inputs) Touch(operand);
    for (const Operand& operand : outputs) Touch(operand);
    steps.push_back({desc, std::move(inputs), std::move(outputs), layer});
    ++step_count_;
  }
  void AddForward(int layer, const OpDesc& desc, std::vector<Operand> inputs,
                  std::vector<Operand> outputs) {
    Add(program_.forward, layer, desc, std::move(inputs), std::move(outputs));
  }
  void AddBackward(int layer, const OpDesc& desc, std::vector<Operand> inputs,
                   std::vector<Operand> outputs) {
    Add(program_.backward, layer, desc, std::move(inputs), std::move(outputs));
  }

  // The descriptor of `layer` with op `kind`; matrices for layers that read flat values.
  OpDesc Desc(OpKind kind, const PlannedLayer& layer) const {
    OpDesc desc;
    desc.kind = kind;
    desc.n = program_.n;
    switch (layer.kind) {
      case LayerKind::kFullyConnected:
        desc.c = layer.in.count();
        desc.out_c = layer.out.c;
        desc.has_bias = layer.has_bias;
        return desc;
      case LayerKind::kEmbedding:
        desc.c = layer.in.count();
        desc.out_c = layer.out.c / layer.in.count();
        desc.rows = layer.rows;
        return desc;
      default:
        break;
    }
    desc.h = layer.in.h;
    desc.w = layer.in.w;
    desc.c = layer.in.c;
    switch (layer.kind) {
      case LayerKind::kConvolution:
        desc.has_bias = layer.has_bias;
        [[fallthrough]];
      case LayerKind::kMaxPooling:
      case LayerKind::kAveragePooling:
      case LayerKind::kGlobalAveragePooling:
        desc.out_h = layer.out.h;
        desc.out_w = layer.out.w;
        desc.out_c = layer.out.c;
        desc.kernel = layer.kernel;
        desc.stride = layer.stride;
        desc.padding = layer.padding;
        break;
      case LayerKind::kBatchNormalization:
        desc.epsilon = layer.epsilon;
        break;
      case LayerKind::kDropout:
        desc.dropout_rate = layer.dropout_rate;
        break;
      default:
        break;
    }
    return desc;
  }

  // ------------------------------------------------------------- forward

  void Forward(int i) {
    const PlannedLayer& layer = plan_.layers[i];
    const Operand x = Value(layer.inputs[0]);
    switch (layer.kind) {
      case LayerKind::kConvolution:
      case LayerKind::kFullyConnected:
        return ForwardWeighted(i, x);
      case LayerKind::kMaxPooling:
        return ForwardMaxPool(i, x);
      case LayerKind::kAveragePooling:
      case LayerKind::kGlobalAveragePooling:
        values_[i] = NewActivation(layer.out);
        return AddForward(i, Desc(OpKind::kAveragePoolForward, layer), {x}, {values_[i]});
      case LayerKind::kRelu:
        return ForwardRelu(i, x);
      case LayerKind::kBatchNormalization:
        return ForwardBatchNorm(i, x);
      case LayerKind::kAdd:
        return ForwardAdd(i);
      case LayerKind::kFlatten:
        values_[i] = x;
        return;
      case LayerKind::kDropout:
        return ForwardDropout(i, x);
      case LayerKind::kEmbedding:
        values_[i] = NewActivation(layer.out);
        return AddForward(i, Desc(OpKind::kEmbeddingForward, layer), {x, Weight(layer.weight)},
                          {values_[i]});
    }
  }

  void ForwardWeighted(int i, const Operand& x) {
    const PlannedLayer& layer = plan_.layers[i];
    const bool convolution = layer.kind == LayerKind::kConvolution;
    OpDesc desc =
        Desc(convolution ? OpKind::kConvolutionForward : OpKind::kFullyConnectedForward, layer);
    desc.fuse_relu = readers_.FusedRelu(i) >= 0;
    std::vector<Operand> inputs = {x, Weight(layer.weight)};
    if (layer.has_bias) inputs.push_back(Parameter(layer.bias));
    values_[i] = NewActivation(layer.out);
    AddForward(i, desc, std::move(inputs), {values_[i]});
  }

  void ForwardMaxPool(int i, const Operand& x) {
    const PlannedLayer& layer = plan_.layers[i];
    values_[i] = NewActivation(layer.out);
    pool_index_.resize(plan_.layers.size());
    pool_index_[i] = NewBuffer(program_.n * layer.out.count(), DataType::kInt32);
    AddForward(i, Desc(OpKind::kMaxPoolForward, layer), {x}, {values_[i], pool_index_[i]});
  }

  void ForwardRelu(int i, const Operand& x) {
    const PlannedLayer& layer = plan_.layers[i];
    const int input = layer.inputs[0];
    if (input != kNetworkInput && readers_.FusedRelu(input) == i) {
      values_[i] = x;
      return;
    }
    values_[i] = readers_.MayOverwrite(input) ? x : NewActivation(layer.out);
    AddForward(i, Desc(OpKind::kReluForward, layer), {x}, {values_[i]});
  }

  void ForwardBatchNorm(int i, const Operand& x) {
    const PlannedLayer& layer = plan_.layers[i];
    values_[i] = NewActivation(layer.out);
    const Operand scale = Parameter(layer.weight), shift = Parameter(layer.bias);
    if (kind_ == ProgramKind::kEvaluation) {
      return AddForward(
          i, Desc(OpKind::kBatchNormInference, layer),
          {x, scale, shift, Statistic(layer.running_mean), Statistic(layer.running_variance)},
          {values_[i]});
    }
    BatchMoments moments;
    moments.mean = Statistic(layer.running_mean, Place::kMoments);
    moments.variance = Statistic(layer.running_variance, Place::kMoments);
    const int64_t count = program_.n * layer.in.h * layer.in.w;
    if (count > 1) {
      moments.unbiased_factor =
          static_cast<float>(static_cast<double>(count) / static_cast<double>(count - 1));
    }
    AddForward(i, Desc(OpKind::kBatchNormForward, layer), {x, scale, shift},
               {values_[i], moments.mean, moments.variance});
    moments_of_.resize(plan_.layers.size());
    moments_of_[i] = static_cast<int>(program_.moments.size());
    program_.moments.push_back(moments);
  }

  void ForwardDropout(int i, const Operand& x) {
    const PlannedLayer& layer = plan_.layers[i];
    values_[i] = readers_.IsAlias(layer) ? x : NewActivation(layer.out);
    if (readers_.IsAlias(layer)) return;
    const auto masks = static_cast<int64_t>(program_.masked_layers.size());
    key_of_.resize(plan_.layers.size());
    key_of_[i] = InPlace(Place::kKeys, masks * kKeyWords, kKeyWords, DataType::kInt32);
    program_.masked_layers.push_back(i);
    AddForward(i, Desc(OpKind::kDropoutForward, layer), {x, key_of_[i]}, {values_[i]});
  }

  void ForwardAdd(int i) {
    const PlannedLayer& layer = plan_.layers[i];
    int a = layer.inputs[0], b = layer.inputs[1];
    if (!readers_.MayOverwrite(a)) std::swap(a, b);  // The sum is the same either way.
    values_[i] = readers_.MayOverwrite(a) ? Value(a) : NewActivation(layer.out);
    AddForward(i, Desc(OpKind::kAdd, layer), {Value(a), Value(b)}, {values_[i]});
  }

  void Loss() {
    OpDesc desc;
    desc.kind = OpKind::kSoftmaxCrossEntropyForward;
    desc.n = program_.n;
    desc.c = plan_.classes;
    program_.logits = values_.back();
    probabilities_ = NewBuffer(program_.n * plan_.classes);
    program_.loss = NewBuffer(program_.n);
    AddForward(-1, desc, {program_.logits, Labels()}, {probabilities_, program_.loss});
  }

  // What is read when all is done must not be overwritten by any later step.
  void KeepResults() {
    --step_count_;
    Touch(program_.logits);
    Touch(program_.loss);
    ++step_count_;
  }

  // ------------------------------------------------------------- backward
  //
  // A gradient is an operand that stands for the finished sum of contributions. uses_[buffer]
  // counts who still needs what is in it: contributions not yet taken, and the layer in hand. A
  // buffer with one use may be overwritten by that user.

  void Backward() {
    const int last = static_cast<int>(plan_.layers.size()) - 1;
    contributions_.resize(plan_.layers.size());
    needs_gradient_.resize(plan_.layers.size());
    for (int i = 0; i <= last; ++i) {
      const PlannedLayer& layer = plan_.layers[i];
      needs_gradient_[i] = layer.weight >= 0;
      for (const int input : layer.inputs) {
        if (WantsGradient(input)) needs_gradient_[i] = true;
      }
    }
    OpDesc desc;
    desc.kind = OpKind::kSoftmaxCrossEntropyBackward;
    desc.n = program_.n;
    desc.c = plan_.classes;
    const Operand dlogits = NewBuffer(program_.n * plan_.classes, tensors_);
    AddBackward(-1, desc, {probabilities_, Labels()}, {dlogits});
    Contribute(last, dlogits);
    for (int i = last; i >= 0; --i) {
      if (!needs_gradient_[i]) continue;
      const Operand dy = TakeGradient(i);
      BackwardLayer(i, dy);
      --uses_[dy.buffer];
    }
  }

  bool WantsGradient(int value) const { return value != kNetworkInput && needs_gradient_[value]; }

  void Contribute(int value, const Operand& gradient) {
    if (!WantsGradient(value)) return;
    contributions_[value].push_back(gradient);
    ++uses_[gradient.buffer];
  }

  // The sum of layer i's contributions, with one use: the caller's.
  Operand TakeGradient(int i) {
    Operand sum = contributions_[i].front();
    for (size_t k = 1; k < contributions_[i].size(); ++k) {
      const Operand& next = contributions_[i][k];
      const Operand out = uses_[sum.buffer] == 1 ? sum : NewActivation(plan_.layers[i].out);
      AddBackward(i, Elementwise(OpKind::kAdd, plan_.layers[i].out), {sum, next}, {out});
      --uses_[sum.buffer];
      --uses_[next.buffer];
      ++uses_[out.buffer];
      sum = out;
    }
    return sum;
  }

  OpDesc Elementwise(OpKind kind, const SampleShape& shape) const {
    OpDesc desc;
    desc.kind = kind;
    desc.n = program_.n;
    desc.h = shape.h;
    desc.w = shape.w;
    desc.c = shape.c;
    return desc;
  }

  void BackwardLayer(int i, const Operand& dy) {
    const PlannedLayer& layer = plan_.layers[i];
    switch (layer.kind) {
      case LayerKind::kConvolution:
        return BackwardWeighted(i, OpKind::kConvolutionBackwardWeights,
                                OpKind::kConvolutionBackwardData, dy);
      case LayerKind::kFullyConnected:
        return BackwardWeighted(i, OpKind::kFullyConnectedBackwardWeights,
                                OpKind::kFullyConnectedBackwardData, dy);
      case LayerKind::kMaxPooling:
        return BackwardToInput(i, OpKind::kMaxPoolBackward, {dy, pool_index_[i]});
      case LayerKind::kAveragePooling:
      case LayerKind::kGlobalAveragePooling:
        return BackwardToInput(i, OpKind::kAveragePoolBackward, {dy});
      case LayerKind::kRelu:
        return BackwardRelu(i, dy);
      case LayerKind::kBatchNormalization:
        return BackwardBatchNorm(i, dy);
      case LayerKind::kAdd:
        for (const int input : layer.inputs) Contribute(input, dy);
        return;
      case LayerKind::kFlatten:
        return Contribute(layer.inputs[0], dy);
      case LayerKind::kDropout:
        if (readers_.IsAlias(layer)) return Contribute(layer.inputs[0], dy);
        return BackwardToInput(i, OpKind::kDropoutBackward, {dy, key_of_[i]});
      case LayerKind::kEmbedding:
        return AddBackward(i, Desc(OpKind::kEmbeddingBackward, layer), {Value(layer.inputs[0]), dy},
                           {Gradient(layer.weight)});
    }
  }

  void BackwardWeighted(int i, OpKind weights, OpKind data, const Operand& dy) {
    const PlannedLayer& layer = plan_.layers[i];
    std::vector<Operand> outputs = {Gradient(layer.weight)};
    if (layer.has_bias) outputs.push_back(Gradient(layer.bias));
    AddBackward(i, Desc(weights, layer), {Value(layer.inputs[0]), dy}, std::move(outputs));
    if (WantsGradient(layer.inputs[0])) BackwardToInput(i, data, {dy, Weight(layer.weight)});
  }

  // A step whose only output is the gradient of the layer's input.
  void BackwardToInput(int i, OpKind kind, std::vector<Operand> inputs) {
    const PlannedLayer& layer = plan_.layers[i];
    const Operand dx = NewActivation(layer.in);
    AddBackward(i, Desc(kind, layer), std::move(inputs), {dx});
    Contribute(layer.inputs[0], dx);
  }

  void BackwardRelu(int i, const Operand& dy) {
    const PlannedLayer& layer = plan_.layers[i];
    const Operand dx = uses_[dy.buffer] == 1 ? dy : NewActivation(layer.in);
    AddBackward(i, Desc(OpKind::kReluBackward, layer), {values_[i], dy}, {dx});
    Contribute(layer.inputs[0], dx);
  }

  void BackwardBatchNorm(int i, const Operand& dy) {
    const PlannedLayer& layer = plan_.layers[i];
    const BatchMoments& moments = program_.moments[moments_of_[i]];
    const Operand dx = NewActivation(layer.in);
    AddBackward(
        i, Desc(OpKind::kBatchNormBackward, layer),
        {Value(layer.inputs[0]), dy, Parameter(layer.weight), moments.mean, moments.variance},
        {dx, Gradient(layer.weight), Gradient(layer.bias)});
    Contribute(layer.inputs[0], dx);
  }

  // ------------------------------------------------------------- memory

  void PlaceBuffers() {
    const ArenaPlan arena = PlanArena(buffers_);
    const auto place = [&arena](Operand& operand) {
      if (operand.buffer >= 0) operand.offset = arena.offsets[operand.buffer];
    };
    for (std::vector<Step>* steps : {&program_.forward, &program_.backward}) {
      for (Step& step : *steps) {
        for (Operand& operand : step.inputs) place(operand);
        for (Operand& operand : step.outputs) place(operand);
      }
    }
    place(program_.logits);
    place(program_.loss);
    program_.arena_bytes = arena.bytes;
  }

  const ModelPlan& plan_;
  const ProgramKind kind_;
  const DataType tensors_;
  const LayerReaders readers_;
  Program program_;
  int64_t step_count_ = 0;  // Steps added so far: the time on which buffers live.
  std::vector<ArenaBuffer> buffers_;
  std::vector<Operand> values_;      // Of every layer: its output.
  std::vector<Operand> pool_index_;  // Of every max-pooling layer.
  std::vector<int> moments_of_;      // Of every batch-norm layer: index in program_.moments.
  std::vector<Operand> key_of_;      // Of every dropout layer that draws.
  Operand probabilities_;
  std::vector<bool> needs_gradient_;  // Of every layer: a parameter can be reached from it.
  std::vector<std::vector<Operand>> contributions_;  // Of every layer: to its output's gradient.
  std::vector<int> uses_;                            // Of every buffer.
};

}  // namespace

absl::StatusOr<Program> BuildProgram(const ModelPlan& plan, int64_t n, ProgramKind kind,
                                     DataType tensors) {
  return Builder(plan, n, kind, tensors).Build();
}

int64_t ParametersEnd(const Step& step) {
  int64_t end = 0;
  for (const std::vector<Operand>* operands : {&step.inputs, &step.outputs}) {
    for (const Operand& operand : *operands) {
      if (operand.place != Place::kParameters && operand.place != Place::kWeights &&
          operand.place != Place::kGradient) {
        continue;
      }
      end = std::max(end, operand.offset / kernels::BytesOf(operand.dtype) + operand.count);
    }
  }
  return end;
}

}  // namespace capstan::worker
