#include "worker/training/program/forward_pass.h"

#include <cstdint>
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

class ForwardPass {
 public:
  ForwardPass(const LayerReaders& readers, ProgramKind kind, ProgramWriter& writer)
      : readers_(readers), kind_(kind), writer_(writer) {
    values_.images = writer.Images();
    values_.outputs.resize(writer.plan().layers.size());
    values_.moments.resize(writer.plan().layers.size());
    values_.kept.resize(writer.plan().layers.size());
  }

  ForwardValues Add() {
    const int layers = static_cast<int>(writer_.plan().layers.size());
    for (int i = 0; i < layers && writer_.status().ok(); ++i) AddLayer(i);
    if (writer_.status().ok()) AddLoss();
    return std::move(values_);
  }

 private:
  void AddLoss() {
    const bool of_classes = writer_.plan().loss.of_classes();
    const OpDesc desc = writer_.LossDesc(kind_, ProgramWriter::Pass::kForward);
    std::vector<Operand> inputs = {values_.logits(),
                                   of_classes ? writer_.Labels() : writer_.Targets()};
    if (desc.has_weights) inputs.push_back(writer_.LossWeights());
    if (of_classes) values_.probabilities = writer_.NewBuffer(writer_.n() * writer_.plan().classes);
    values_.loss = writer_.NewBuffer(writer_.n());
    std::vector<Operand> outputs = {values_.loss};
    if (of_classes) outputs.insert(outputs.begin(), values_.probabilities);
    writer_.AddForward(-1, desc, std::move(inputs), std::move(outputs));
  }

  // Makes a new buffer for the output of layer `i`, and records it.
  const Operand& NewOutput(int i) {
    return values_.outputs[i] = writer_.NewActivation(writer_.layer(i).out);
  }
  // Same, but takes the buffer of `value` if no other step needs that.
  const Operand& OutputOver(int i, int value) {
    if (!readers_.MayOverwrite(value)) return NewOutput(i);
    return values_.outputs[i] = values_.Value(value);
  }

  void AddLayer(int i) {
    const PlannedLayer& layer = writer_.layer(i);
    const Operand x = values_.Value(layer.inputs[0]);
    if (readers_.Maker(i) != i) {
      values_.outputs[i] = values_.outputs[readers_.Maker(i)];
      return;
    }
    if (readers_.IsAlias(layer)) {
      values_.outputs[i] = x;
      return;
    }
    if (const std::optional<LayerOps> ops = OpsOf(layer)) return AddByName(i, ops->forward);
    switch (layer.kind) {
      case v1::Layer::kRelu:
        return writer_.AddForward(i, writer_.Elementwise(OpKind::kReluForward, layer.in), {x},
                                  {OutputOver(i, layer.inputs[0])});
      case v1::Layer::kBatchNormalization:
        return AddBatchNorm(i, x);
      case v1::Layer::kAdd:
        return AddSum(i);
      default:
        return writer_.Refuse(i, absl::InternalError("no step computes it"));
    }
  }

  // Adds the step of an op by the names of its operands (layer_ops.h).
  void AddByName(int i, OpKind kind) {
    OpDesc desc = writer_.Desc(kind, writer_.layer(i));
    desc.fuse_relu = readers_.FusedRelu(i) >= 0;
    const absl::StatusOr<kernels::OpSignature> op = kernels::MakeSignature(desc);
    if (!op.ok()) return writer_.Refuse(i, op.status());
    std::vector<Operand> inputs, outputs;
    for (const kernels::Operand& input : op->input_list()) {
      inputs.push_back(Input(i, desc, input.name));
    }
    for (const kernels::Operand& output : op->output_list()) outputs.push_back(Output(i, output));
    writer_.AddForward(i, desc, std::move(inputs), std::move(outputs));
  }

  Operand Input(int i, const OpDesc& op, const std::string& name) {
    const PlannedLayer& layer = writer_.layer(i);
    if (name == "x" || name == "rows") return values_.Value(layer.inputs[0]);
    if (name == "key") return values_.kept[i][name] = writer_.NewMaskKey(i);
    if (const auto parameter = ParameterNamed(name, layer, writer_)) return *parameter;
    writer_.Refuse(i, UnknownOperand(op, name));
    return {};
  }

  Operand Output(int i, const kernels::Operand& output) {
    if (output.name == absl::string_view("y")) return NewOutput(i);
    return values_.kept[i][output.name] = writer_.NewBuffer(output.count, output.dtype);
  }

  // Adds a batch norm's step, with the sum and the ReLU that are fused into it.
  void AddBatchNorm(int i, const Operand& x) {
    const PlannedLayer& layer = writer_.layer(i);
    const bool training = kind_ == ProgramKind::kTraining;
    OpDesc desc =
        writer_.Desc(training ? OpKind::kBatchNormForward : OpKind::kBatchNormInference, layer);
    desc.fuse_relu = readers_.FusedRelu(i) >= 0;
    desc.has_addend = readers_.FusedAdd(i) >= 0;
    std::vector<Operand> inputs = {x, writer_.Parameter(layer.weight),
                                   writer_.Parameter(layer.bias)};
    if (!training) {
      inputs.push_back(writer_.Statistic(layer.running_mean));
      inputs.push_back(writer_.Statistic(layer.running_variance));
    }
    if (desc.has_addend) inputs.push_back(values_.Value(readers_.Addend(i)));
    std::vector<Operand> outputs = {desc.has_addend ? OutputOver(i, readers_.Addend(i))
                                                    : NewOutput(i)};
    if (training) {
      values_.moments[i] = Moments(layer);
      writer_.AddMoments(values_.moments[i]);
      outputs.push_back(values_.moments[i].mean);
      outputs.push_back(values_.moments[i].variance);
    }
    writer_.AddForward(i, desc, std::move(inputs), std::move(outputs));
  }

  BatchMoments Moments(const PlannedLayer& layer) const {
    BatchMoments moments;
    moments.mean = writer_.Moment(layer.running_mean);
    moments.variance = writer_.Moment(layer.running_variance);
    const int64_t count = writer_.n() * layer.in.h * layer.in.w;
    if (count > 1) {
      moments.unbiased_factor =
          static_cast<float>(static_cast<double>(count) / static_cast<double>(count - 1));
    }
    return moments;
  }

  void AddSum(int i) {
    const PlannedLayer& layer = writer_.layer(i);
    int a = layer.inputs[0], b = layer.inputs[1];
    if (!readers_.MayOverwrite(a)) std::swap(a, b);  // The sum is the same either way.
    writer_.AddForward(i, writer_.Elementwise(OpKind::kAdd, layer.in),
                       {values_.Value(a), values_.Value(b)}, {OutputOver(i, a)});
  }

  const LayerReaders& readers_;
  const ProgramKind kind_;
  ProgramWriter& writer_;
  ForwardValues values_;
};

}  // namespace

ForwardValues AddForwardPass(const LayerReaders& readers, ProgramKind kind, ProgramWriter& writer) {
  return ForwardPass(readers, kind, writer).Add();
}

}  // namespace capstan::worker
