#include "worker/training/program/backward_pass.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/op_check.h"
#include "proto/job.pb.h"
#include "worker/training/program/layer_ops.h"

namespace capstan::worker {
namespace {

using kernels::OpDesc;
using kernels::OpKind;

constexpr absl::string_view kInputGradient = "dx";

// A layer's gradient is the sum of its contributions: one operand, or two if the step of a batch
// norm adds them up. uses_[buffer] counts the users that still need the buffer's contents:
// contributions not yet taken, and the current layer. The user of a buffer with one use may
// overwrite it.
class BackwardPass {
 public:
  BackwardPass(const LayerReaders& readers, const ForwardValues& forward, ProgramWriter& writer)
      : readers_(readers),
        forward_(forward),
        writer_(writer),
        needs_gradient_(writer.plan().layers.size()),
        contributions_(writer.plan().layers.size()) {}

  void Add() {
    const int layers = static_cast<int>(writer_.plan().layers.size());
    for (int i = 0; i < layers; ++i) {
      const PlannedLayer& layer = writer_.layer(i);
      needs_gradient_[i] =
          layer.weight >= 0 || std::any_of(layer.inputs.begin(), layer.inputs.end(),
                                           [this](int input) { return WantsGradient(input); });
    }
    const Operand dlogits = writer_.NewActivation({1, 1, writer_.plan().classes});
    const bool of_classes = writer_.plan().loss.of_classes();
    const OpDesc desc = writer_.LossDesc(ProgramKind::kTraining, ProgramWriter::Pass::kBackward);
    std::vector<Operand> inputs = {of_classes ? forward_.probabilities : forward_.logits(),
                                   of_classes ? writer_.Labels() : writer_.Targets()};
    if (desc.has_weights) inputs.push_back(writer_.LossWeights());
    writer_.AddBackward(-1, desc, std::move(inputs), {dlogits});
    Contribute(/*reader=*/layers, layers - 1, dlogits);
    for (int i = layers - 1; i >= 0 && writer_.status().ok(); --i) {
      if (!needs_gradient_[i]) continue;
      const std::vector<Operand> parts = TakeGradient(i);
      AddLayer(i, parts);
      for (const Operand& part : parts) --Uses(part);
    }
  }

 private:
  struct Contribution {
    int reader = 0;  // The layer from whose backward step it comes.
    Operand gradient;
  };

  bool WantsGradient(int value) const { return value != kNetworkInput && needs_gradient_[value]; }
  int& Uses(const Operand& gradient) {
    const auto buffer = static_cast<size_t>(gradient.buffer);
    if (buffer >= uses_.size()) uses_.resize(buffer + 1);
    return uses_[buffer];
  }

  // Adds the gradient of `value` that comes from its reader `reader`.
  void Contribute(int reader, int value, const Operand& gradient) {
    if (!WantsGradient(value)) return;
    contributions_[value].push_back({reader, gradient});
    ++Uses(gradient);
  }
  void ContributeToInput(int i, const Operand& dx) {
    Contribute(i, writer_.layer(i).inputs[0], dx);
  }

  // Returns the sum of layer i's contributions, with one use: the caller's; or two operands whose
  // sum it is, if a batch norm's step adds them up. Adds in descending order of the readers, also
  // if a batch norm's step has contributed the gradient of a later sum that is fused into it.
  std::vector<Operand> TakeGradient(int i) {
    std::vector<Contribution>& parts = contributions_[i];
    std::stable_sort(parts.begin(), parts.end(), [](const Contribution& a, const Contribution& b) {
      return a.reader > b.reader;
    });
    const bool two = parts.size() > 1 && TakesTwo(i);
    const SampleShape& shape = writer_.layer(i).out;
    Operand sum = parts.front().gradient;
    for (size_t k = 1; k < parts.size() - (two ? 1 : 0); ++k) {
      const Operand& next = parts[k].gradient;
      const Operand out = OverOrNew(sum, shape);
      writer_.AddBackward(i, writer_.Elementwise(OpKind::kAdd, shape), {sum, next}, {out});
      --Uses(sum);
      --Uses(next);
      ++Uses(out);
      sum = out;
    }
    if (two) return {sum, parts.back().gradient};
    return {sum};
  }

  // True if layer i is a batch norm with an addend, or the sum or the ReLU that its step computes.
  bool TakesTwo(int i) const {
    const int maker = readers_.Maker(i);
    return writer_.layer(maker).kind == v1::Layer::kBatchNormalization &&
           readers_.FusedAdd(maker) >= 0;
  }

  // Returns `gradient` itself if the caller is its last user, else a new buffer.
  Operand OverOrNew(const Operand& gradient, const SampleShape& shape) {
    return Uses(gradient) == 1 ? gradient : writer_.NewActivation(shape);
  }

  // `parts`: one, or up to two if TakesTwo(i).
  void AddLayer(int i, const std::vector<Operand>& parts) {
    const PlannedLayer& layer = writer_.layer(i);
    const Operand& dy = parts.front();
    if (readers_.IsAlias(layer)) return ContributeToInput(i, dy);
    if (const std::optional<LayerOps> ops = OpsOf(layer)) {
      for (const OpKind kind : ops->backward) AddByName(i, kind, dy);
      return;
    }
    switch (layer.kind) {
      case v1::Layer::kRelu:
        return AddRelu(i, parts);
      case v1::Layer::kBatchNormalization:
        return AddBatchNorm(i, parts);
      case v1::Layer::kAdd:
        return PassSum(i, parts);
      default:
        return writer_.Refuse(i, absl::InternalError("no step computes its gradient"));
    }
  }

  // Adds the step of an op by the names of its operands (layer_ops.h).
  void AddByName(int i, OpKind kind, const Operand& dy) {
    const PlannedLayer& layer = writer_.layer(i);
    const OpDesc desc = writer_.Desc(kind, layer);
    const absl::StatusOr<kernels::OpSignature> op = kernels::MakeSignature(desc);
    if (!op.ok()) return writer_.Refuse(i, op.status());
    const bool only_dx = op->output_count == 1 && op->outputs[0].name == kInputGradient;
    if (only_dx && !WantsGradient(layer.inputs[0])) return;
    std::vector<Operand> inputs, outputs;
    for (const kernels::Operand& input : op->input_list()) {
      inputs.push_back(Input(i, desc, input.name, dy));
    }
    std::optional<Operand> dx;
    for (const kernels::Operand& output : op->output_list()) {
      if (output.name == kInputGradient) {
        dx = writer_.NewActivation(layer.in);
        outputs.push_back(*dx);
      } else if (const auto gradient = GradientNamed(output.name, layer, writer_)) {
        outputs.push_back(*gradient);
      } else {
        writer_.Refuse(i, UnknownOperand(desc, output.name));
      }
    }
    writer_.AddBackward(i, desc, std::move(inputs), std::move(outputs));
    if (dx) ContributeToInput(i, *dx);
  }

  Operand Input(int i, const OpDesc& op, const std::string& name, const Operand& dy) const {
    const PlannedLayer& layer = writer_.layer(i);
    if (name == "dy") return dy;
    if (name == "y") return forward_.Value(i);
    if (name == "x" || name == "rows") return forward_.Value(layer.inputs[0]);
    if (const auto parameter = ParameterNamed(name, layer, writer_)) return *parameter;
    const auto kept = forward_.kept[i].find(name);
    if (kept != forward_.kept[i].end()) return kept->second;
    writer_.Refuse(i, UnknownOperand(op, name));
    return {};
  }

  void PassOn(int i, int value, const std::vector<Operand>& parts) {
    for (const Operand& part : parts) Contribute(i, value, part);
  }

  void AddRelu(int i, const std::vector<Operand>& parts) {
    const PlannedLayer& layer = writer_.layer(i);
    const PlannedLayer& maker = writer_.layer(readers_.Maker(i));
    // A batch norm's step includes the ReLU's backward step; that of a layer with weights does not.
    if (maker.kind == v1::Layer::kBatchNormalization) return PassOn(i, layer.inputs[0], parts);
    const Operand& dy = parts.front();
    const Operand dx = OverOrNew(dy, layer.in);
    writer_.AddBackward(i, writer_.Elementwise(OpKind::kReluBackward, layer.in),
                        {forward_.Value(i), dy}, {dx});
    ContributeToInput(i, dx);
  }

  void PassSum(int i, const std::vector<Operand>& parts) {
    const int maker = readers_.Maker(i);
    // The addend's gradient is an output of the batch norm's step.
    if (maker != i) return PassOn(i, maker, parts);
    for (const int input : writer_.layer(i).inputs) PassOn(i, input, parts);
  }

  void AddBatchNorm(int i, const std::vector<Operand>& parts) {
    const PlannedLayer& layer = writer_.layer(i);
    const BatchMoments& moments = forward_.moments[i];
    const int sum = readers_.FusedAdd(i);
    OpDesc desc = writer_.Desc(OpKind::kBatchNormBackward, layer);
    desc.fuse_relu = readers_.FusedRelu(i) >= 0;
    desc.has_addend = sum >= 0;
    desc.has_dy2 = parts.size() > 1;
    std::vector<Operand> inputs = {forward_.Value(layer.inputs[0]), parts.front(),
                                   writer_.Parameter(layer.weight), moments.mean, moments.variance};
    if (desc.has_addend) {
      inputs.push_back(forward_.Value(i));
    } else if (desc.fuse_relu) {
      inputs.push_back(writer_.Parameter(layer.bias));
    }
    if (desc.has_dy2) inputs.push_back(parts.back());
    const Operand dx = writer_.NewActivation(layer.in);
    std::vector<Operand> outputs = {dx, writer_.Gradient(layer.weight),
                                    writer_.Gradient(layer.bias)};
    if (desc.has_addend) {
      const Operand& over = Uses(parts.front()) == 1 ? parts.front() : parts.back();
      outputs.push_back(OverOrNew(over, layer.out));
      Contribute(sum, readers_.Addend(i), outputs.back());
    }
    writer_.AddBackward(i, desc, std::move(inputs), std::move(outputs));
    ContributeToInput(i, dx);
  }

  const LayerReaders& readers_;
  const ForwardValues& forward_;
  ProgramWriter& writer_;
  std::vector<bool> needs_gradient_;  // For each layer: a parameter can be reached from it.
  // For each layer: the contributions to its output's gradient.
  std::vector<std::vector<Contribution>> contributions_;
  std::vector<int> uses_;  // Uses of each buffer.
};

}  // namespace

void AddBackwardPass(const LayerReaders& readers, const ForwardValues& forward,
                     ProgramWriter& writer) {
  BackwardPass(readers, forward, writer).Add();
}

}  // namespace capstan::worker
