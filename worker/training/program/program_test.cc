#include "worker/training/program/program.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/plan_model.h"
#include "common/model/zoo.h"
#include "common/testing/status_matchers.h"
#include "kernels/activation.h"
#include "kernels/op_check.h"
#include "proto/job.pb.h"
#include "worker/training/program/build_program.h"

namespace capstan::worker::program_test {
namespace {

using kernels::OpKind;

ModelPlan Plan(const std::string& text, SampleShape input = {8, 8, 3}) {
  v1::Model model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &model));
  REQUIRE_OK_AND_ASSIGN(ModelPlan plan, PlanModel(model, input, 10));
  return plan;
}

Program Build(const ModelPlan& plan, ProgramKind kind = ProgramKind::kTraining, int64_t n = 4,
              kernels::DataType tensors = kernels::DataType::kFloat32) {
  REQUIRE_OK_AND_ASSIGN(Program program, BuildProgram(plan, n, kind, tensors));
  return program;
}

std::vector<OpKind> Kinds(const std::vector<Step>& steps) {
  std::vector<OpKind> kinds;
  for (const Step& step : steps) kinds.push_back(step.desc.kind);
  return kinds;
}

int CountKind(const std::vector<Step>& steps, OpKind kind) {
  int count = 0;
  for (const Step& step : steps) count += step.desc.kind == kind;
  return count;
}

// Counts batch norms with exactly these layers fused into them.
int CountFused(const std::vector<Step>& steps, bool relu, bool addend) {
  int count = 0;
  for (const Step& step : steps) {
    const OpKind kind = step.desc.kind;
    if (kind != OpKind::kBatchNormForward && kind != OpKind::kBatchNormInference &&
        kind != OpKind::kBatchNormBackward) {
      continue;
    }
    count += step.desc.fuse_relu == relu && step.desc.has_addend == addend;
  }
  return count;
}

bool Reads(const Step& step, const Operand& operand) {
  return std::any_of(step.inputs.begin(), step.inputs.end(),
                     [&](const Operand& input) { return input.buffer == operand.buffer; });
}

TEST_CASE("Program: lenet fuses its ReLU and computes no gradient of its input",
          "[worker][training]") {
  const ModelPlan plan = Plan("zoo: 'lenet'", {28, 28, 1});
  const Program program = Build(plan);
  CHECK(Kinds(program.forward) ==
        std::vector<OpKind>{OpKind::kConvolutionForward, OpKind::kMaxPoolForward,
                            OpKind::kConvolutionForward, OpKind::kMaxPoolForward,
                            OpKind::kFullyConnectedForward, OpKind::kFullyConnectedForward,
                            OpKind::kSoftmaxCrossEntropyForward});
  CHECK(program.forward[4].desc.fuse_relu);
  CHECK_FALSE(program.forward[5].desc.fuse_relu);
  CHECK(Kinds(program.backward) ==
        std::vector<OpKind>{OpKind::kSoftmaxCrossEntropyBackward,
                            OpKind::kFullyConnectedBackwardWeights,
                            OpKind::kFullyConnectedBackwardData, OpKind::kReluBackward,
                            OpKind::kFullyConnectedBackwardWeights,
                            OpKind::kFullyConnectedBackwardData, OpKind::kMaxPoolBackward,
                            OpKind::kConvolutionBackwardWeights, OpKind::kConvolutionBackwardData,
                            OpKind::kMaxPoolBackward, OpKind::kConvolutionBackwardWeights});
}

TEST_CASE("Program: ReLU is not fused where another layer reads what comes before it",
          "[worker][training]") {
  const Program program = Build(Plan(R"(
    layers { name: "c" convolution { filters: 3 kernel: 1 } }
    layers { name: "r" relu {} }
    layers { name: "s" inputs: "r" inputs: "c" add {} }
    layers { name: "f" fully_connected { units: 10 } })"));
  CHECK_FALSE(program.forward[0].desc.fuse_relu);
  REQUIRE(program.forward[1].desc.kind == OpKind::kReluForward);
  // It is not in place either: the sum still reads the convolution's output.
  CHECK(program.forward[1].outputs[0].buffer != program.forward[1].inputs[0].buffer);
  // The sum must not overwrite the ReLU's output, which the ReLU's backward step reads.
  REQUIRE(program.forward[2].desc.kind == OpKind::kAdd);
  CHECK(program.forward[2].outputs[0].buffer != program.forward[1].outputs[0].buffer);
}

TEST_CASE("Program: an op that refuses its layer names both", "[worker][training]") {
  ModelPlan plan = Plan(R"(
    layers { name: "n" layer_normalization {} }
    layers { name: "f" fully_connected { units: 10 } })");
  plan.layers[0].epsilon = 0;
  CHECK_STATUS(BuildProgram(plan, 4, ProgramKind::kTraining), absl::StatusCode::kInvalidArgument,
               "layer \"n\": layer_norm_forward n=4 8x8x3 epsilon 0: epsilon is 0, expected");
}

TEST_CASE("Program: a residual network's batch norms take sums and ReLU along",
          "[worker][training]") {
  const ModelPlan plan = Plan("zoo: 'resnet20'", {32, 32, 3});
  for (const ProgramKind kind : {ProgramKind::kTraining, ProgramKind::kEvaluation}) {
    const Program program = Build(plan, kind);
    CHECK(CountKind(program.forward, OpKind::kReluForward) == 0);
    CHECK(CountKind(program.forward, OpKind::kAdd) == 0);
    // A block has one without a sum and one with; two blocks normalise their shortcut as well.
    CHECK(CountFused(program.forward, /*relu=*/true, /*addend=*/false) == 1 + 9);
    CHECK(CountFused(program.forward, /*relu=*/true, /*addend=*/true) == 9);
    CHECK(CountFused(program.forward, /*relu=*/false, /*addend=*/false) == 2);
    const bool training = kind == ProgramKind::kTraining;
    CHECK(CountFused(program.backward, /*relu=*/true, /*addend=*/false) == (training ? 10 : 0));
    CHECK(CountFused(program.backward, /*relu=*/true, /*addend=*/true) == (training ? 9 : 0));
    CHECK(CountFused(program.backward, /*relu=*/false, /*addend=*/false) == (training ? 2 : 0));
    CHECK(program.moments.size() == (training ? 21 : 0));
  }
}

TEST_CASE("Program: a residual block runs in place where nobody else looks", "[worker][training]") {
  const ModelPlan plan = Plan("zoo: 'resnet20'", {32, 32, 3});
  const Program program = Build(plan);
  int in_place = 0;
  for (const Step& step : program.forward) {
    if (step.desc.has_addend) in_place += step.outputs[0].buffer == step.inputs[3].buffer;
  }
  CHECK(in_place == 2);  // They overwrite the main branch if the shortcut is normalised.
  for (const Step& step : program.backward) {
    if (step.desc.has_addend) CHECK(step.outputs[3].buffer == step.inputs[1].buffer);
  }
  // The batch norm before each block, except for the first, adds up the block's two gradients.
  CHECK(CountKind(program.backward, OpKind::kReluBackward) == 0);
  CHECK(std::count_if(program.backward.begin(), program.backward.end(),
                      [](const Step& step) { return step.desc.has_dy2; }) == 8);
  CHECK(CountKind(program.backward, OpKind::kAdd) == 1);
  for (const Step& step : program.backward) {
    if (step.desc.kind == OpKind::kAdd) {
      CHECK(step.outputs[0].buffer == step.inputs[0].buffer);
    }
  }
}

TEST_CASE("Program: gradients behind a sum that batch norm takes along", "[worker][training]") {
  const Program program = Build(Plan(R"(
    layers { name: "p" average_pooling { kernel: 1 } }
    layers { name: "c" convolution { filters: 3 kernel: 1 } }
    layers { name: "b" batch_normalization {} }
    layers { name: "x" inputs: "p" inputs: "b" add {} }
    layers { name: "r" relu {} }
    layers { name: "d" convolution { filters: 3 kernel: 1 } }
    layers { name: "n" batch_normalization {} }
    layers { name: "e" inputs: "r" convolution { filters: 3 kernel: 1 } }
    layers { name: "y" inputs: "n" inputs: "r" add {} }
    layers { name: "s" relu {} }
    layers { name: "z" inputs: "s" inputs: "e" add {} }
    layers { name: "w" inputs: "z" inputs: "r" add {} }
    layers { name: "f" fully_connected { units: 10 } })"));
  const Step& first = program.forward[2];
  const Step& second = program.forward[4];
  REQUIRE(first.layer == 2);
  REQUIRE(second.layer == 6);
  // The pool's output has two readers; the other addend is a ReLU's output that others read.
  CHECK(first.desc.has_addend);
  CHECK(first.inputs[3].buffer == program.forward[0].outputs[0].buffer);
  CHECK(second.desc.has_addend);
  CHECK(second.inputs[3].buffer == first.outputs[0].buffer);

  CHECK(Kinds(program.backward) ==
        std::vector<OpKind>{OpKind::kSoftmaxCrossEntropyBackward,
                            OpKind::kFullyConnectedBackwardWeights,
                            OpKind::kFullyConnectedBackwardData,
                            OpKind::kConvolutionBackwardWeights,  // e
                            OpKind::kConvolutionBackwardData,
                            OpKind::kBatchNormBackward,           // n, and y and s
                            OpKind::kConvolutionBackwardWeights,  // d
                            OpKind::kConvolutionBackwardData, OpKind::kAdd, OpKind::kAdd,  // r
                            OpKind::kBatchNormBackward,  // b, and x and the rest of r
                            OpKind::kConvolutionBackwardWeights});
  const Step& norm = program.backward[5];
  CHECK(norm.inputs[5].buffer == second.outputs[0].buffer);
  // It is not in place: w's gradient is also a part of r's.
  CHECK(norm.outputs[3].buffer != norm.inputs[1].buffer);
  // The contributions are added in descending order of the readers: w, y, e, d.
  CHECK(program.backward[8].inputs[0].buffer == norm.inputs[1].buffer);
  CHECK(program.backward[8].inputs[1].buffer == norm.outputs[3].buffer);
  CHECK(program.backward[9].inputs[1].buffer == program.backward[4].outputs[0].buffer);
  const Step& last = program.backward[10];
  REQUIRE(last.desc.has_dy2);
  CHECK(last.inputs[1].buffer == program.backward[9].outputs[0].buffer);
  CHECK(last.inputs[6].buffer == program.backward[7].outputs[0].buffer);
  // An addend's gradient that no step reads still has a place: the pool is before all parameters.
  REQUIRE(last.outputs.size() == 4);
  CHECK(last.outputs[3].buffer == last.inputs[1].buffer);
}

TEST_CASE("Program: batch norm that takes a ReLU along needs no output of it on the way back",
          "[worker][training]") {
  const Program program = Build(Plan(R"(
    layers { name: "c" convolution { filters: 3 kernel: 1 } }
    layers { name: "b" batch_normalization {} }
    layers { name: "r" relu {} }
    layers { name: "s" relu {} }
    layers { name: "f" fully_connected { units: 10 } })"));
  REQUIRE(program.forward[1].desc.fuse_relu);
  REQUIRE(program.forward[2].desc.kind == OpKind::kReluForward);
  CHECK(program.forward[2].outputs[0].buffer == program.forward[1].outputs[0].buffer);
  const Step& norm = program.backward[4];
  REQUIRE(norm.desc.kind == OpKind::kBatchNormBackward);
  REQUIRE(norm.inputs.size() == 6);
  CHECK(norm.inputs[5].place == Place::kParameters);
  CHECK(norm.inputs[5].offset == program.forward[1].inputs[2].offset);
}

TEST_CASE("Program: layers come in descending order on the way back, each with its whole gradient",
          "[worker][training]") {
  int with_addend = 0;
  for (const std::string& zoo : ZooNames()) {
    INFO(zoo);
    const Program program = Build(Plan("zoo: '" + zoo + "'", {32, 32, 3}));
    CHECK(program.backward.front().layer == -1);
    for (size_t i = 2; i < program.backward.size(); ++i) {
      CHECK(program.backward[i].layer <= program.backward[i - 1].layer);
    }
    // Only steps of earlier layers read a batch norm's part of its addend's gradient.
    for (size_t i = 0; i < program.backward.size(); ++i) {
      const Step& norm = program.backward[i];
      if (!norm.desc.has_addend) continue;
      ++with_addend;
      int reads = 0;
      for (size_t k = i + 1; k < program.backward.size(); ++k) {
        const Step& later = program.backward[k];
        if (!Reads(later, norm.outputs[3])) continue;
        CHECK(later.layer < norm.layer);
        ++reads;
      }
      CHECK(reads > 0);
    }
  }
  CHECK(with_addend > 0);
}

TEST_CASE("Program: evaluation drops dropout, and never overwrites through its alias",
          "[worker][training]") {
  const ModelPlan plan = Plan(R"(
    layers { name: "n" batch_normalization {} }
    layers { name: "d" dropout { rate: 0.5 } }
    layers { name: "r" relu {} }
    layers { name: "s" inputs: "r" inputs: "n" add {} }
    layers { name: "f" fully_connected { units: 10 } })");
  const Program program = Build(plan, ProgramKind::kEvaluation);
  CHECK(CountKind(program.forward, OpKind::kDropoutForward) == 0);
  CHECK(program.backward.empty());
  REQUIRE(program.forward[1].desc.kind == OpKind::kReluForward);
  CHECK(program.forward[1].outputs[0].buffer != program.forward[0].outputs[0].buffer);
}

TEST_CASE("Program: each dropout layer that draws has a key, the same on the way back",
          "[worker][training]") {
  const ModelPlan plan = Plan(R"(
    layers { name: "f" fully_connected { units: 10 } }
    layers { name: "d" dropout { rate: 0.5 } }
    layers { name: "z" dropout { rate: 0 } }
    layers { name: "g" fully_connected { units: 10 } }
    layers { name: "e" dropout { rate: 0.1 } }
    layers { name: "h" fully_connected { units: 10 } })");
  const Program program = Build(plan);
  CHECK(program.masked_layers == std::vector<int>{1, 4});
  int draws = 0;
  for (const std::vector<Step>* steps : {&program.forward, &program.backward}) {
    for (const Step& step : *steps) {
      if (step.desc.dropout_rate == 0) continue;
      REQUIRE(step.inputs.size() == 2);
      CHECK(step.inputs[1].place == Place::kKeys);
      CHECK(step.inputs[1].offset == (step.layer == 1 ? 0 : 8));
      ++draws;
    }
  }
  CHECK(draws == 4);
  CHECK(Build(plan, ProgramKind::kEvaluation).masked_layers.empty());
}

TEST_CASE("Program: layers before the first parameter have no backward step",
          "[worker][training]") {
  const Program program = Build(Plan(R"(
    layers { name: "p" average_pooling { kernel: 2 } }
    layers { name: "d" dropout { rate: 0.5 } }
    layers { name: "f" fully_connected { units: 10 } })"));
  CHECK(Kinds(program.backward) == std::vector<OpKind>{OpKind::kSoftmaxCrossEntropyBackward,
                                                       OpKind::kFullyConnectedBackwardWeights});
}

// Runs the program on labels instead of numbers: every arena element remembers the buffer that was
// written last, and every read must find its own buffer.
void CheckMemory(const Program& program) {
  constexpr int64_t kUnit = 2;  // Bytes: the smallest element.
  std::vector<int> owner(static_cast<size_t>(program.arena_bytes / kUnit), -1);
  const auto range = [](const Operand& operand) {
    const int64_t bytes = operand.count * kernels::BytesOf(operand.dtype);
    return std::pair(operand.offset / kUnit, (operand.offset + bytes) / kUnit);
  };
  const auto check = [&](const Operand& operand) {
    if (operand.buffer < 0) return true;
    const auto [begin, end] = range(operand);
    if (end > static_cast<int64_t>(owner.size())) return false;
    for (int64_t unit = begin; unit < end; ++unit) {
      if (owner[static_cast<size_t>(unit)] != operand.buffer) return false;
    }
    return true;
  };
  const auto run = [&](const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const Operand& operand : step.inputs) CHECK(check(operand));
      for (const Operand& operand : step.outputs) {
        if (operand.buffer < 0) continue;
        const auto [begin, end] = range(operand);
        std::fill(owner.begin() + begin, owner.begin() + end, operand.buffer);
      }
      for (const Operand& operand : step.outputs) CHECK(check(operand));  // No output overlaps.
    }
  };
  run(program.forward);
  run(program.backward);
  CHECK(check(program.logits));
  CHECK(check(program.loss));
}

TEST_CASE("Program: every read finds what was written for it", "[worker][training]") {
  for (const std::string& zoo : ZooNames()) {
    const ModelPlan plan = Plan("zoo: '" + zoo + "'", {32, 32, 3});
    for (const ProgramKind kind : {ProgramKind::kTraining, ProgramKind::kEvaluation}) {
      INFO(zoo);
      CheckMemory(Build(plan, kind, 2));
      CheckMemory(Build(plan, kind, 2, kernels::DataType::kBfloat16));
    }
  }
}

// Checks every operand against the op's signature.
void CheckTypes(const std::vector<Step>& steps, kernels::DataType tensors) {
  for (const Step& step : steps) {
    REQUIRE_OK_AND_ASSIGN(kernels::OpSignature signature, kernels::MakeSignature(step.desc));
    signature = kernels::WithTensorType(signature, tensors);
    REQUIRE(static_cast<int>(step.inputs.size()) == signature.input_count);
    REQUIRE(static_cast<int>(step.outputs.size()) == signature.output_count);
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      CHECK(step.inputs[i].dtype == signature.inputs[i].dtype);
      CHECK(step.inputs[i].count == signature.inputs[i].count);
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      CHECK(step.outputs[i].dtype == signature.outputs[i].dtype);
      CHECK(step.outputs[i].count == signature.outputs[i].count);
    }
  }
}

TEST_CASE("Program: operands have the types that a backend's tensors have", "[worker][training]") {
  for (const std::string& zoo : ZooNames()) {
    INFO(zoo);
    const ModelPlan plan = Plan("zoo: '" + zoo + "'", {32, 32, 3});
    for (const auto tensors : {kernels::DataType::kFloat32, kernels::DataType::kBfloat16}) {
      for (const ProgramKind kind : {ProgramKind::kTraining, ProgramKind::kEvaluation}) {
        const Program program = Build(plan, kind, 2, tensors);
        CheckTypes(program.forward, tensors);
        CheckTypes(program.backward, tensors);
      }
    }
  }
}

TEST_CASE("Program: bf16 halves the arena, and does not hold an embedding's row numbers",
          "[worker][training]") {
  const ModelPlan plan = Plan("zoo: 'resnet20'", {32, 32, 3});
  const auto bytes = [&](kernels::DataType tensors) {
    return Build(plan, ProgramKind::kTraining, 64, tensors).arena_bytes;
  };
  // All are 16-bit except for losses, and pools' indices, which this model does not have.
  CHECK(bytes(kernels::DataType::kBfloat16) * 100 < bytes(kernels::DataType::kFloat32) * 51);
  const ModelPlan rows = Plan(R"(
    layers { name: "e" embedding { rows: 10 dim: 2 } }
    layers { name: "f" fully_connected { units: 10 } })",
                              {1, 1, 3});
  CHECK_STATUS(BuildProgram(rows, 1, ProgramKind::kTraining, kernels::DataType::kBfloat16),
               absl::StatusCode::kUnimplemented,
               "layer \"e\": an embedding computes with fp32 or TF32");
}

TEST_CASE("Program: every parameter's gradient is written once", "[worker][training]") {
  for (const char* zoo : {"lenet", "resnet20"}) {
    const ModelPlan plan = Plan(std::string("zoo: '") + zoo + "'", {32, 32, 3});
    std::vector<int> writes(static_cast<size_t>(plan.parameter_count), 0);
    for (const Step& step : Build(plan, ProgramKind::kTraining, 1).backward) {
      for (const Operand& operand : step.outputs) {
        if (operand.place != Place::kGradient) continue;
        for (int64_t e = 0; e < operand.count; ++e) ++writes[operand.offset / 4 + e];
      }
    }
    CHECK(writes == std::vector<int>(writes.size(), 1));
  }
}

TEST_CASE("Program: a batch too large for a kernel names the layer", "[worker][training]") {
  const ModelPlan plan = Plan("zoo: 'lenet'", {28, 28, 1});
  CHECK_STATUS(BuildProgram(plan, int64_t{1} << 40, ProgramKind::kTraining),
               absl::StatusCode::kResourceExhausted,
               "layer \"conv1\": a batch of 1099511627776 needs 1099511627776 x 11520 values");
}

TEST_CASE("Program: each activation's steps are ops of its name, and read its input",
          "[training]") {
  for (const char* const name : kernels::kActivationNames) {
    const Program program = Build(Plan(absl::StrCat(
        "layers { name: 'f' fully_connected { units: 10 } } layers { name: 'u' ", name, " {} }")));
    INFO(name);
    REQUIRE(program.forward[1].desc.kind == OpKind::kActivationForward);
    REQUIRE(program.backward[1].desc.kind == OpKind::kActivationBackward);
    for (const Step& step : {program.forward[1], program.backward[1]}) {
      CHECK(NameOf(step.desc.activation) == std::string(name));
      CHECK(kernels::MakeSignature(step.desc).ok());
    }
    CHECK(program.backward[1].inputs[0].offset == program.forward[1].inputs[0].offset);
  }
}

}  // namespace
}  // namespace capstan::worker::program_test
