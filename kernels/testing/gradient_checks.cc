#include "kernels/testing/gradient_checks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/op_check.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {
namespace {

using K = OpKind;
using Floats = std::vector<float>;

constexpr float kStep = 0x1p-7f;
constexpr RunOptions kOptions = {.scale = 4.0f};

// Makes values in [-1, 1). Up to 60 values are at least 4 steps apart and 2 steps away from 0, so
// that no kink of ReLU or max lies within a step. More values are uniform.
Floats Spread(uint64_t key, int64_t count) {
  Floats values = Uniform(key, count);
  if (values.size() > 60) return values;
  Floats sorted = values;
  std::sort(sorted.begin(), sorted.end());
  for (float& value : values) {
    const auto rank = std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
    value = static_cast<float>(rank) * 4.0f * kStep - 30.5f * 4.0f * kStep;
  }
  return values;
}

// The weights g of output `which` in L.
Floats Factors(const Operands& outputs, size_t which) {
  return Spread(9, static_cast<int64_t>(outputs.values[which].size()));
}

Operands SpreadInputs(const OpDesc& desc) {
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  Operands inputs = MakeInputs(signature);
  for (size_t i = 0; i < inputs.values.size(); ++i) {
    if (inputs.types[i] != DataType::kFloat32) continue;
    Floats& values = inputs.values[i];
    if (std::string(signature.inputs[i].name) != "rows") {
      values = Spread(i + 1, static_cast<int64_t>(values.size()));
      continue;
    }
    for (size_t j = 0; j < values.size(); ++j) {
      values[j] = static_cast<float>(j * 3 % static_cast<size_t>(desc.rows));
    }
  }
  return inputs;
}

OpDesc OfKind(OpDesc desc, K kind) {
  desc.kind = kind;
  return desc;
}

// A forward op on the backend under test. It measures slopes by moving single input elements.
class Forward {
 public:
  Forward(const RunOp& run, double tolerance, const OpDesc& desc)
      : run_(run), tolerance_(tolerance), desc_(desc), inputs_(SpreadInputs(desc)) {}

  Operands Run() { return run_(desc_, inputs_, kOptions); }

  const Floats& input(size_t which) const { return inputs_.values[which]; }
  void AddTo(size_t which, float amount) {
    for (float& value : inputs_.values[which]) value += amount;
  }

  // Returns the outputs of the backward op `kind`, whose inputs have the values `operands`.
  Operands Backward(K kind, const std::vector<Floats>& operands) const {
    REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(OfKind(desc_, kind)));
    REQUIRE(signature.input_count == static_cast<int>(operands.size()));
    Operands inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      inputs.Add(operands[i], signature.inputs[i].dtype);
    }
    return run_(signature.desc, inputs, kOptions);
  }

  // Checks `gradient` of sum(g * output `which_output`) with respect to an input, element by
  // element.
  void Check(size_t which_output, const Floats& g, size_t which_input, const Floats& gradient) {
    Floats& input = inputs_.values[which_input];
    REQUIRE(gradient.size() == input.size());
    double largest = 1.0;
    for (const float value : gradient) largest = std::max(largest, std::fabs(double{value}));
    for (size_t i = 0; i < gradient.size(); ++i) {
      const float original = input[i];
      const float above = original + kStep, below = original - kStep;
      input[i] = above;
      const double loss_above = Loss(which_output, g);
      input[i] = below;
      const double loss_below = Loss(which_output, g);
      input[i] = original;
      const double slope = (loss_above - loss_below) / (double{above} - double{below});
      INFO(ToString(desc_) << " input " << which_input << " element " << i << " slope " << slope
                           << " gradient " << gradient[i]);
      REQUIRE(std::fabs(slope - double{gradient[i]}) <= tolerance_ * largest);
    }
  }

 private:
  double Loss(size_t which_output, const Floats& g) {
    const Operands outputs = Run();
    double sum = 0.0;
    for (size_t i = 0; i < g.size(); ++i) {
      sum += double{g[i]} * double{outputs.values[which_output][i]};
    }
    return sum;
  }

  const RunOp& run_;
  const double tolerance_;
  const OpDesc desc_;
  Operands inputs_;
};

// ---------------------------------------------------------------- the checks

// Checks an op with weights and a bias, whose backward ops are `of_data` and `of_weights`.
void CheckWeighted(Forward& forward, K of_data, K of_weights) {
  const Floats g = Factors(forward.Run(), 0);
  const Operands dx = forward.Backward(of_data, {g, forward.input(1)});
  forward.Check(0, g, 0, dx.values[0]);
  const Operands dw = forward.Backward(of_weights, {forward.input(0), g});
  forward.Check(0, g, 1, dw.values[0]);
  forward.Check(0, g, 2, dw.values[1]);
}

void CheckConvolution(const RunOp& run, double tolerance) {
  for (const WindowCase& t :
       {WindowCase{2, 5, 4, 2, 3, 3, 1, 0}, WindowCase{1, 6, 5, 3, 2, 3, 2, 1},
        WindowCase{2, 4, 4, 1, 2, 2, 3, 1}, WindowCase{1, 1, 1, 4, 3, 1, 1, 0}}) {
    Forward forward(run, tolerance, WindowDesc(K::kConvolutionForward, t, true, false));
    CheckWeighted(forward, K::kConvolutionBackwardData, K::kConvolutionBackwardWeights);
  }
}

void CheckFullyConnected(const RunOp& run, double tolerance) {
  OpDesc desc = MatrixDesc(K::kFullyConnectedForward, 3, 5, 4);
  desc.has_bias = true;
  Forward forward(run, tolerance, desc);
  CheckWeighted(forward, K::kFullyConnectedBackwardData, K::kFullyConnectedBackwardWeights);
}

void CheckPools(const RunOp& run, double tolerance) {
  for (const WindowCase& t :
       {WindowCase{1, 6, 4, 2, 2, 2, 2, 0}, WindowCase{1, 5, 5, 2, 2, 3, 2, 1},
        WindowCase{1, 7, 5, 1, 1, 3, 1, 0}}) {
    Forward max(run, tolerance, WindowDesc(K::kMaxPoolForward, t, false, false));
    const Operands y = max.Run();
    const Floats g = Factors(y, 0);
    max.Check(0, g, 0, max.Backward(K::kMaxPoolBackward, {g, y.values[1]}).values[0]);
    Forward average(run, tolerance, WindowDesc(K::kAveragePoolForward, t, false, false));
    average.Check(0, g, 0, average.Backward(K::kAveragePoolBackward, {g}).values[0]);
  }
}

void CheckRelu(const RunOp& run, double tolerance) {
  Forward forward(run, tolerance, MatrixDesc(K::kReluForward, 4, 13, 1));
  const Operands y = forward.Run();
  const Floats g = Factors(y, 0);
  forward.Check(0, g, 0, forward.Backward(K::kReluBackward, {y.values[0], g}).values[0]);
}

void CheckActivations(const RunOp& run, double tolerance) {
  for (const OpDesc& desc : ActivationDescs(4, 13)) {
    if (desc.kind != K::kActivationForward) continue;
    INFO(ToString(desc));
    Forward forward(run, tolerance, desc);
    const Floats g = Factors(forward.Run(), 0);
    forward.Check(0, g, 0,
                  forward.Backward(K::kActivationBackward, {forward.input(0), g}).values[0]);
  }
}

void CheckLayerNorm(const RunOp& run, double tolerance) {
  OpDesc desc = MatrixDesc(K::kLayerNormForward, 2, 6, 1);
  desc.w = 2;
  desc.epsilon = 0.1f;
  Forward forward(run, tolerance, desc);
  const Operands y = forward.Run();
  const Floats g = Factors(y, 0);
  const Operands gradients = forward.Backward(
      K::kLayerNormBackward, {forward.input(0), g, forward.input(1), y.values[1], y.values[2]});
  for (size_t i = 0; i < 3; ++i) forward.Check(0, g, i, gradients.values[i]);
}

void CheckRmsNorm(const RunOp& run, double tolerance) {
  OpDesc desc = MatrixDesc(K::kRmsNormForward, 2, 6, 1);
  desc.w = 2;
  desc.epsilon = 0.1f;
  Forward forward(run, tolerance, desc);
  const Operands y = forward.Run();
  const Floats g = Factors(y, 0);
  const Operands gradients =
      forward.Backward(K::kRmsNormBackward, {forward.input(0), g, forward.input(1), y.values[1]});
  for (size_t i = 0; i < 2; ++i) forward.Check(0, g, i, gradients.values[i]);
}

void CheckDropout(const RunOp& run, double tolerance) {
  OpDesc desc = MatrixDesc(K::kDropoutForward, 4, 13, 1);
  desc.dropout_rate = 0.4f;
  Forward forward(run, tolerance, desc);
  const Floats g = Factors(forward.Run(), 0);
  const Operands dx = forward.Backward(K::kDropoutBackward, {g, forward.input(1)});
  CHECK(std::count(dx.values[0].begin(), dx.values[0].end(), 0.0f) > 0);
  forward.Check(0, g, 0, dx.values[0]);
}

OpDesc SmallBatchNorm(bool relu, bool addend) {
  OpDesc desc = MatrixDesc(K::kBatchNormForward, 3, 3, 1);
  desc.h = desc.w = 2;
  desc.fuse_relu = relu;
  desc.has_addend = addend;
  return desc;
}

void CheckBatchNorm(const RunOp& run, double tolerance) {
  Forward forward(run, tolerance, SmallBatchNorm(false, false));
  const Operands y = forward.Run();
  const Floats g = Factors(y, 0);
  const Operands gradients = forward.Backward(
      K::kBatchNormBackward, {forward.input(0), g, forward.input(1), y.values[1], y.values[2]});
  for (size_t i = 0; i < 3; ++i) forward.Check(0, g, i, gradients.values[i]);
}

// Added to every shift, this makes some sums positive and some negative, and none so small that a
// step of any input could change its sign: one step moves a sum by about 3 steps.
constexpr float kMoreShift = 0.8f;
void RequireClearSigns(const Floats& sums) {
  float smallest = 1.0f;
  for (const float sum : sums) smallest = std::min(smallest, std::fabs(sum));
  REQUIRE(smallest > 6.0f * kStep);
  REQUIRE(*std::min_element(sums.begin(), sums.end()) < 0.0f);
  REQUIRE(*std::max_element(sums.begin(), sums.end()) > 0.0f);
}

// Checks batch norm with ReLU, with or without an addend.
void CheckFusedBatchNorm(const RunOp& run, double tolerance, bool addend) {
  Forward plain(run, tolerance, SmallBatchNorm(false, false));
  Forward forward(run, tolerance, SmallBatchNorm(true, addend));
  plain.AddTo(2, kMoreShift);
  forward.AddTo(2, kMoreShift);
  Floats sums = plain.Run().values[0];
  for (size_t i = 0; addend && i < sums.size(); ++i) sums[i] += forward.input(3)[i];
  RequireClearSigns(sums);
  const Operands y = forward.Run();
  const Floats g = Factors(y, 0);
  const Floats& sixth = addend ? y.values[0] : forward.input(2);
  const Operands gradients =
      forward.Backward(K::kBatchNormBackward,
                       {forward.input(0), g, forward.input(1), y.values[1], y.values[2], sixth});
  for (size_t i = 0; i < 3; ++i) forward.Check(0, g, i, gradients.values[i]);
  if (addend) forward.Check(0, g, 3, gradients.values[3]);
}

void CheckBatchNormRelu(const RunOp& run, double tolerance) {
  CheckFusedBatchNorm(run, tolerance, false);
}

void CheckBatchNormAddRelu(const RunOp& run, double tolerance) {
  CheckFusedBatchNorm(run, tolerance, true);
}

void CheckSoftmax(const RunOp& run, double tolerance) {
  Forward forward(run, tolerance, MatrixDesc(K::kSoftmaxCrossEntropyForward, 4, 5, 1));
  const Operands y = forward.Run();
  const Floats g(4, kOptions.scale);  // L is the scaled sum of the losses, output 1.
  const Operands dlogits =
      forward.Backward(K::kSoftmaxCrossEntropyBackward, {y.values[0], forward.input(1)});
  forward.Check(1, g, 0, dlogits.values[0]);
}

void CheckWeightedSoftmax(const RunOp& run, double tolerance) {
  OpDesc desc = MatrixDesc(K::kSoftmaxCrossEntropyForward, 4, 5, 1);
  desc.has_weights = true;
  Forward forward(run, tolerance, desc);
  forward.AddTo(2, 1.5f);  // Weights are at least 0.
  const Operands y = forward.Run();
  const Operands dlogits = forward.Backward(K::kSoftmaxCrossEntropyBackward,
                                            {y.values[0], forward.input(1), forward.input(2)});
  forward.Check(1, Floats(4, kOptions.scale), 0, dlogits.values[0]);
}

// Losses have kinks where an output equals its target or is delta away from it. To avoid them,
// outputs and targets are multiples of four steps, shifted by one step against each other, and the
// delta is between two of them.
void CheckOutputLosses(const RunOp& run, double tolerance) {
  for (const auto& [loss, parameter, weighted] :
       {std::tuple{OutputLoss::kSquared, 0.0f, false}, std::tuple{OutputLoss::kHuber, 0.5f, false},
        std::tuple{OutputLoss::kQuantile, 0.3f, false},
        std::tuple{OutputLoss::kSigmoid, 0.0f, false},
        std::tuple{OutputLoss::kSigmoid, 0.0f, true}}) {
    OpDesc desc = MatrixDesc(K::kOutputLossForward, 4, 5, 1);
    desc.loss = loss;
    desc.loss_parameter = parameter;
    desc.has_weights = weighted;
    Forward forward(run, tolerance, desc);
    forward.AddTo(1, 2.0f * kStep);
    if (weighted) forward.AddTo(2, 1.5f);
    std::vector<Floats> operands = {forward.input(0), forward.input(1)};
    if (weighted) operands.push_back(forward.input(2));
    const Operands dlogits = forward.Backward(K::kOutputLossBackward, operands);
    forward.Check(0, Floats(4, kOptions.scale), 0, dlogits.values[0]);
  }
}

void CheckEmbedding(const RunOp& run, double tolerance) {
  OpDesc desc = MatrixDesc(K::kEmbeddingForward, 2, 2, 3);
  desc.rows = 6;  // SpreadInputs reads rows 0, 3, 0, 3: some twice, some never.
  Forward forward(run, tolerance, desc);
  const Floats g = Factors(forward.Run(), 0);
  const Operands dweight = forward.Backward(K::kEmbeddingBackward, {forward.input(0), g});
  forward.Check(0, g, 1, dweight.values[0]);
}

constexpr GradientCheck kChecks[] = {
    {"convolution", &CheckConvolution},
    {"fully connected", &CheckFullyConnected},
    {"pools, with and without overlap and padding", &CheckPools},
    {"ReLU", &CheckRelu},
    {"activations", &CheckActivations},
    {"layer norm", &CheckLayerNorm},
    {"RMS norm", &CheckRmsNorm, /*host_only=*/true},
    {"dropout", &CheckDropout},
    {"batch norm", &CheckBatchNorm},
    {"batch norm with ReLU", &CheckBatchNormRelu},
    {"batch norm with an addend and ReLU", &CheckBatchNormAddRelu},
    {"softmax cross-entropy", &CheckSoftmax},
    {"softmax cross-entropy with weights of classes", &CheckWeightedSoftmax, /*host_only=*/true},
    {"squared, Huber and quantile loss, sigmoid cross-entropy", &CheckOutputLosses,
     /*host_only=*/true},
    {"embedding, rows read twice and never", &CheckEmbedding},
};

}  // namespace

absl::Span<const GradientCheck> GradientChecks() { return kChecks; }

}  // namespace capstan::kernels
