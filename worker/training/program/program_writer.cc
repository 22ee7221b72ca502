#include "worker/training/program/program_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "kernels/activation.h"
#include "proto/job.pb.h"

namespace capstan::worker {

using kernels::DataType;
using kernels::OpDesc;
using kernels::OpKind;

namespace {

Operand InPlace(Place place, int64_t element, int64_t count, DataType dtype = DataType::kFloat32) {
  Operand operand;
  operand.place = place;
  operand.offset = element * kernels::BytesOf(dtype);
  operand.count = count;
  operand.dtype = dtype;
  return operand;
}

Operand InTable(Place place, const PlannedTensor& tensor, DataType dtype = DataType::kFloat32) {
  return InPlace(place, tensor.offset, tensor.count, dtype);
}

kernels::OutputLoss OpLossOf(PlannedLoss::Kind kind) {
  switch (kind) {
    case PlannedLoss::Kind::kHuber:
      return kernels::OutputLoss::kHuber;
    case PlannedLoss::Kind::kQuantile:
      return kernels::OutputLoss::kQuantile;
    case PlannedLoss::Kind::kSigmoid:
      return kernels::OutputLoss::kSigmoid;
    case PlannedLoss::Kind::kSoftmax:
    case PlannedLoss::Kind::kSquared:
      break;
  }
  return kernels::OutputLoss::kSquared;
}

}  // namespace

ProgramWriter::ProgramWriter(const ModelPlan& plan, int64_t n, DataType tensors)
    : plan_(plan), tensors_(tensors) {
  program_.n = n;
}

// ---------------------------------------------------------------- operands

Operand ProgramWriter::NewBuffer(int64_t count, DataType dtype) {
  buffers_.push_back({count * kernels::BytesOf(dtype), static_cast<int>(step_count_), -1});
  Operand operand;
  operand.count = count;
  operand.dtype = dtype;
  operand.buffer = static_cast<int>(buffers_.size()) - 1;
  return operand;
}

Operand ProgramWriter::NewActivation(const SampleShape& shape) {
  return NewBuffer(n() * shape.count(), tensors_);
}

Operand ProgramWriter::Images() const {
  return InPlace(Place::kImages, 0, n() * plan_.input.count(), tensors_);
}

Operand ProgramWriter::Labels() const { return InPlace(Place::kLabels, 0, n(), DataType::kInt32); }

Operand ProgramWriter::Targets() const { return InPlace(Place::kTargets, 0, n() * plan_.classes); }

Operand ProgramWriter::LossWeights() const {
  return InPlace(Place::kLossWeights, 0, static_cast<int64_t>(plan_.loss.weights.size()));
}

Operand ProgramWriter::Parameter(int index) const {
  return InTable(Place::kParameters, plan_.parameters[index]);
}

Operand ProgramWriter::Weight(int index) const {
  return InTable(Place::kWeights, plan_.parameters[index], tensors_);
}

Operand ProgramWriter::Gradient(int index) const {
  return InTable(Place::kGradient, plan_.parameters[index]);
}

Operand ProgramWriter::Statistic(int index) const {
  return InTable(Place::kStatistics, plan_.statistics[index]);
}

Operand ProgramWriter::Moment(int index) const {
  return InTable(Place::kMoments, plan_.statistics[index]);
}

Operand ProgramWriter::NewMaskKey(int i) {
  const auto masks = static_cast<int64_t>(program_.masked_layers.size());
  program_.masked_layers.push_back(i);
  return InPlace(Place::kKeys, masks * kKeyWords, kKeyWords, DataType::kInt32);
}

// ---------------------------------------------------------------- descriptors

OpDesc ProgramWriter::Desc(OpKind kind, const PlannedLayer& layer) const {
  OpDesc desc = Elementwise(kind, layer.in);
  desc.out_h = layer.out.h;
  desc.out_w = layer.out.w;
  desc.out_c = layer.out.c;
  desc.kernel = layer.kernel;
  desc.stride = layer.stride;
  desc.padding = layer.padding;
  desc.has_bias = layer.has_bias;
  desc.epsilon = layer.epsilon;
  desc.dropout_rate = layer.dropout_rate;
  desc.rows = layer.rows;
  if (!layer.activation.empty()) desc.activation = kernels::ActivationNamed(layer.activation);
  const bool embeds = layer.kind == v1::Layer::kEmbedding;
  if (embeds || layer.kind == v1::Layer::kFullyConnected) {
    desc.h = desc.w = 1;
    desc.c = layer.in.count();
  }
  if (embeds) desc.out_c = layer.out.c / layer.in.count();
  return desc;
}

OpDesc ProgramWriter::Elementwise(OpKind kind, const SampleShape& shape) const {
  OpDesc desc;
  desc.kind = kind;
  desc.n = n();
  desc.h = shape.h;
  desc.w = shape.w;
  desc.c = shape.c;
  return desc;
}

OpDesc ProgramWriter::LossDesc(ProgramKind program, Pass pass) const {
  const PlannedLoss& loss = plan_.loss;
  const bool forward = pass == Pass::kForward;
  OpKind kind = forward ? OpKind::kOutputLossForward : OpKind::kOutputLossBackward;
  if (loss.of_classes()) {
    kind = forward ? OpKind::kSoftmaxCrossEntropyForward : OpKind::kSoftmaxCrossEntropyBackward;
  }
  OpDesc desc = Elementwise(kind, {1, 1, plan_.classes});
  desc.has_weights = program == ProgramKind::kTraining && !loss.weights.empty();
  if (loss.of_classes()) return desc;
  desc.loss = OpLossOf(loss.kind);
  desc.loss_parameter = loss.parameter;
  return desc;
}

// ---------------------------------------------------------------- steps and memory

void ProgramWriter::Refuse(int layer, const absl::Status& why) {
  status_.Update(Annotate(why, absl::StrCat("layer \"", plan_.layers[layer].name, "\"")));
}

void ProgramWriter::AddForward(int layer, const OpDesc& desc, std::vector<Operand> inputs,
                               std::vector<Operand> outputs) {
  Add(program_.forward, layer, desc, std::move(inputs), std::move(outputs));
}

void ProgramWriter::AddBackward(int layer, const OpDesc& desc, std::vector<Operand> inputs,
                                std::vector<Operand> outputs) {
  Add(program_.backward, layer, desc, std::move(inputs), std::move(outputs));
}

void ProgramWriter::Add(std::vector<Step>& steps, int layer, const OpDesc& desc,
                        std::vector<Operand> inputs, std::vector<Operand> outputs) {
  for (const Operand& operand : inputs) UsedAt(operand, step_count_);
  for (const Operand& operand : outputs) UsedAt(operand, step_count_);
  steps.push_back({desc, std::move(inputs), std::move(outputs), layer});
  ++step_count_;
}

void ProgramWriter::UsedAt(const Operand& operand, int64_t step) {
  if (operand.buffer >= 0) buffers_[operand.buffer].last = static_cast<int>(step);
}

absl::StatusOr<Program> ProgramWriter::Finish(const Operand& logits, const Operand& loss) {
  if (!status_.ok()) return status_;
  program_.logits = logits;
  program_.loss = loss;
  // No step may overwrite the results, which are read after the last step.
  UsedAt(logits, step_count_ - 1);
  UsedAt(loss, step_count_ - 1);
  PlaceBuffers();
  return std::move(program_);
}

void ProgramWriter::PlaceBuffers() {
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

}  // namespace capstan::worker
