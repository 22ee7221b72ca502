// Backward ops of the reference against finite differences of its forward ops.
//
// For L = sum(g * y) with fixed g, the slope of L along one input element is measured by the
// central difference (L(x + h) - L(x - h)) / 2h with h = 2^-7. Its error is the truncation h^2 / 6
// * |L'''| = 1e-5 |L'''| and the rounding of the fp32 outputs, 2^-25 * sqrt(outputs) / h = 1e-4 for
// 1000 outputs of size 1. So 1e-3, relative to the largest slope where that is above 1, is safe,
// and far below any mistake in a formula.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_backend.h"

namespace capstan::kernels {
namespace {

using K = OpKind;
using Floats = std::vector<float>;

constexpr float kStep = 0x1p-7f;
constexpr double kTolerance = 1e-3;
const RunOptions kOptions = {.scale = 0.25f};

// One operand; numbers is used where the type is int32.
struct Value {
  Floats floats;
  std::vector<int32_t> numbers;
  DataType dtype = DataType::kFloat32;

  TensorView View() {
    if (dtype == DataType::kInt32) {
      return ViewOf(numbers.data(), static_cast<int64_t>(numbers.size()));
    }
    return ViewOf(floats.data(), static_cast<int64_t>(floats.size()));
  }
};
using Values = std::vector<Value>;

Value FloatsValue(Floats floats) { return {.floats = std::move(floats)}; }

// Values in [-1, 1) that are at least 4 steps apart and 2 steps away from 0 for up to 60 elements,
// so that no kink of ReLU or max lies within a step; beyond that, uniform ones.
Floats Spread(uint64_t key, int64_t count) {
  Floats values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 2.0f * ToUnitFloat(PhiloxWord(key, i)) - 1.0f;
  }
  if (values.size() > 60) return values;
  Floats sorted = values;
  std::sort(sorted.begin(), sorted.end());
  for (float& value : values) {
    const auto rank = std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
    value = static_cast<float>(rank) * 4.0f * kStep - 30.5f * 4.0f * kStep;
  }
  return values;
}

Values RunReference(const OpDesc& desc, Values& inputs) {
  const auto backend = MakeReferenceBackend();
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  REQUIRE_OK_AND_ASSIGN(const auto plan, backend->Prepare(desc));
  Values outputs;
  for (int i = 0; i < signature.output_count; ++i) {
    const Operand& operand = signature.outputs[static_cast<size_t>(i)];
    Value value;
    value.dtype = operand.dtype;
    if (operand.dtype == DataType::kInt32) {
      value.numbers.resize(static_cast<size_t>(operand.count));
    } else {
      value.floats.resize(static_cast<size_t>(operand.count));
    }
    outputs.push_back(std::move(value));
  }
  std::vector<TensorView> in, out;
  for (Value& value : inputs) in.push_back(value.View());
  for (Value& value : outputs) out.push_back(value.View());
  REQUIRE_OK(backend->Run(*plan, in, out, kOptions));
  return outputs;
}

// L = sum(g * output `which`).
double Loss(const OpDesc& forward, Values& inputs, size_t which, const Floats& g) {
  const Values outputs = RunReference(forward, inputs);
  double sum = 0.0;
  for (size_t i = 0; i < g.size(); ++i) sum += double{g[i]} * double{outputs[which].floats[i]};
  return sum;
}

// Checks `gradient` of L with respect to inputs[which_input], element by element.
void CheckGradient(const OpDesc& forward, Values inputs, size_t which_output, const Floats& g,
                   size_t which_input, const Floats& gradient) {
  REQUIRE(gradient.size() == inputs[which_input].floats.size());
  double largest = 1.0;
  for (const float value : gradient) largest = std::max(largest, std::fabs(double{value}));
  for (size_t i = 0; i < gradient.size(); ++i) {
    float& element = inputs[which_input].floats[i];
    const float original = element;
    element = original + kStep;
    const float above = element;
    const double loss_above = Loss(forward, inputs, which_output, g);
    element = original - kStep;
    const float below = element;
    const double loss_below = Loss(forward, inputs, which_output, g);
    element = original;
    const double slope = (loss_above - loss_below) / (double{above} - double{below});
    INFO(ToString(forward) << " input " << which_input << " element " << i);
    REQUIRE(std::fabs(slope - double{gradient[i]}) <= kTolerance * largest);
  }
}

// Uniform inputs for the op; labels and rows in range.
Values MakeInputs(const OpDesc& desc) {
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  Values inputs;
  for (int i = 0; i < signature.input_count; ++i) {
    const Operand& operand = signature.inputs[static_cast<size_t>(i)];
    Value value = FloatsValue(Spread(static_cast<uint64_t>(i) + 1, operand.count));
    value.dtype = operand.dtype;
    if (operand.dtype == DataType::kInt32) {
      value.floats.clear();
      for (int64_t j = 0; j < operand.count; ++j) {
        value.numbers.push_back(static_cast<int32_t>(j % desc.c));
      }
    }
    if (std::string(operand.name) == "rows") {
      for (size_t j = 0; j < value.floats.size(); ++j) {
        value.floats[j] = static_cast<float>(j * 3 % static_cast<size_t>(desc.rows));
      }
    }
    inputs.push_back(std::move(value));
  }
  return inputs;
}

OpDesc OfKind(OpDesc desc, K kind) {
  desc.kind = kind;
  return desc;
}

OpDesc Window(K kind, int64_t n, int64_t h, int64_t w, int64_t c, int64_t out_c, int64_t kernel,
              int64_t stride, int64_t padding) {
  OpDesc d;
  d.kind = kind;
  d.n = n;
  d.h = h;
  d.w = w;
  d.c = c;
  d.out_h = (h + 2 * padding - kernel) / stride + 1;
  d.out_w = (w + 2 * padding - kernel) / stride + 1;
  d.out_c = out_c;
  d.kernel = kernel;
  d.stride = stride;
  d.padding = padding;
  return d;
}

TEST_CASE("Reference gradients: convolution", "[kernels][reference]") {
  const OpDesc cases[] = {Window(K::kConvolutionForward, 2, 5, 4, 2, 3, 3, 1, 0),
                          Window(K::kConvolutionForward, 1, 6, 5, 3, 2, 3, 2, 1),
                          Window(K::kConvolutionForward, 2, 4, 4, 1, 2, 2, 3, 1),
                          Window(K::kConvolutionForward, 1, 1, 1, 4, 3, 1, 1, 0)};
  for (OpDesc forward : cases) {
    forward.has_bias = true;
    Values inputs = MakeInputs(forward);
    const Values y = RunReference(forward, inputs);
    const Floats g = Spread(9, static_cast<int64_t>(y[0].floats.size()));
    Values data_in = {FloatsValue(g), inputs[1]};
    const Values dx = RunReference(OfKind(forward, K::kConvolutionBackwardData), data_in);
    CheckGradient(forward, inputs, 0, g, 0, dx[0].floats);
    Values weights_in = {inputs[0], FloatsValue(g)};
    const Values dw = RunReference(OfKind(forward, K::kConvolutionBackwardWeights), weights_in);
    CheckGradient(forward, inputs, 0, g, 1, dw[0].floats);
    CheckGradient(forward, inputs, 0, g, 2, dw[1].floats);
  }
}

TEST_CASE("Reference gradients: fully connected", "[kernels][reference]") {
  OpDesc forward;
  forward.kind = K::kFullyConnectedForward;
  forward.n = 3;
  forward.c = 5;
  forward.out_c = 4;
  forward.has_bias = true;
  Values inputs = MakeInputs(forward);
  const Floats g = Spread(9, 12);
  Values data_in = {FloatsValue(g), inputs[1]};
  const Values dx = RunReference(OfKind(forward, K::kFullyConnectedBackwardData), data_in);
  CheckGradient(forward, inputs, 0, g, 0, dx[0].floats);
  Values weights_in = {inputs[0], FloatsValue(g)};
  const Values dw = RunReference(OfKind(forward, K::kFullyConnectedBackwardWeights), weights_in);
  CheckGradient(forward, inputs, 0, g, 1, dw[0].floats);
  CheckGradient(forward, inputs, 0, g, 2, dw[1].floats);
}

TEST_CASE("Reference gradients: pools, with and without overlap and padding",
          "[kernels][reference]") {
  const OpDesc cases[] = {Window(K::kMaxPoolForward, 1, 6, 4, 2, 2, 2, 2, 0),
                          Window(K::kMaxPoolForward, 1, 5, 5, 2, 2, 3, 2, 1),
                          Window(K::kMaxPoolForward, 1, 7, 5, 1, 1, 3, 1, 0)};
  for (const OpDesc& max : cases) {
    Values inputs = MakeInputs(max);
    const Values y = RunReference(max, inputs);
    const Floats g = Spread(9, static_cast<int64_t>(y[0].floats.size()));
    Values max_in = {FloatsValue(g), y[1]};
    const Values max_dx = RunReference(OfKind(max, K::kMaxPoolBackward), max_in);
    CheckGradient(max, inputs, 0, g, 0, max_dx[0].floats);
    Values average_in = {FloatsValue(g)};
    const Values average_dx = RunReference(OfKind(max, K::kAveragePoolBackward), average_in);
    CheckGradient(OfKind(max, K::kAveragePoolForward), inputs, 0, g, 0, average_dx[0].floats);
  }
}

TEST_CASE("Reference gradients: ReLU and dropout", "[kernels][reference]") {
  OpDesc relu;
  relu.kind = K::kReluForward;
  relu.n = 4;
  relu.c = 13;
  Values inputs = MakeInputs(relu);
  const Values y = RunReference(relu, inputs);
  const Floats g = Spread(9, 52);
  Values relu_in = {y[0], FloatsValue(g)};
  const Values relu_dx = RunReference(OfKind(relu, K::kReluBackward), relu_in);
  CheckGradient(relu, inputs, 0, g, 0, relu_dx[0].floats);

  OpDesc dropout = OfKind(relu, K::kDropoutForward);
  dropout.dropout_rate = 0.4f;
  Values dropped = MakeInputs(dropout);
  Values dropout_in = {FloatsValue(g), dropped[1]};
  const Values dropout_dx = RunReference(OfKind(dropout, K::kDropoutBackward), dropout_in);
  CheckGradient(dropout, dropped, 0, g, 0, dropout_dx[0].floats);
}

TEST_CASE("Reference gradients: batch norm", "[kernels][reference]") {
  OpDesc forward;
  forward.kind = K::kBatchNormForward;
  forward.n = 3;
  forward.h = 2;
  forward.w = 2;
  forward.c = 3;
  Values inputs = MakeInputs(forward);
  const Values y = RunReference(forward, inputs);
  const Floats g = Spread(9, 36);
  Values in = {inputs[0], FloatsValue(g), inputs[1], y[1], y[2]};
  const Values gradients = RunReference(OfKind(forward, K::kBatchNormBackward), in);
  for (size_t i = 0; i < 3; ++i) CheckGradient(forward, inputs, 0, g, i, gradients[i].floats);
}

TEST_CASE("Reference gradients: softmax cross-entropy", "[kernels][reference]") {
  OpDesc forward;
  forward.kind = K::kSoftmaxCrossEntropyForward;
  forward.n = 4;
  forward.c = 5;
  Values inputs = MakeInputs(forward);
  const Values y = RunReference(forward, inputs);
  const Floats g(4, kOptions.scale);  // L is the scaled sum of the losses, output 1.
  Values in = {y[0], inputs[1]};
  const Values dlogits = RunReference(OfKind(forward, K::kSoftmaxCrossEntropyBackward), in);
  CheckGradient(forward, inputs, 1, g, 0, dlogits[0].floats);
}

TEST_CASE("Reference gradients: embedding, rows read twice and never", "[kernels][reference]") {
  OpDesc forward;
  forward.kind = K::kEmbeddingForward;
  forward.n = 2;
  forward.c = 2;
  forward.out_c = 3;
  forward.rows = 6;  // MakeInputs reads rows 0, 3, 0, 3.
  Values inputs = MakeInputs(forward);
  const Floats g = Spread(9, 12);
  Values in = {inputs[0], FloatsValue(g)};
  const Values dweight = RunReference(OfKind(forward, K::kEmbeddingBackward), in);
  CheckGradient(forward, inputs, 0, g, 1, dweight[0].floats);
}

TEST_CASE("Reference: known small results", "[kernels][reference]") {
  // A 2x2 mean with one row of padding leaves the padding out: the first window holds two values.
  const OpDesc average = Window(K::kAveragePoolForward, 1, 2, 2, 1, 1, 2, 1, 1);
  Values pixels = {FloatsValue({1.0f, 3.0f, 5.0f, 7.0f})};
  CHECK(RunReference(average, pixels)[0].floats ==
        Floats{1.0f, 2.0f, 3.0f, 3.0f, 4.0f, 5.0f, 5.0f, 6.0f, 7.0f});
  // Two equal logits: probability 1/2 each, loss log 2.
  OpDesc softmax;
  softmax.kind = K::kSoftmaxCrossEntropyForward;
  softmax.n = 1;
  softmax.c = 2;
  Values logits = MakeInputs(softmax);
  logits[0].floats = {3.0f, 3.0f};
  const Values out = RunReference(softmax, logits);
  CHECK(out[0].floats == Floats{0.5f, 0.5f});
  CHECK(out[1].floats[0] == Approx(std::log(2.0)));
}

TEST_CASE("Reference: dropout keeps about 1 - rate of the elements, chosen by the key",
          "[kernels][reference]") {
  OpDesc d;
  d.kind = K::kDropoutForward;
  d.n = 100;
  d.c = 100;
  d.dropout_rate = 0.25f;
  const uint64_t key = 0x9876543289abcdef;  // Both words have their highest bit.
  const auto words = WordsOfKey(key);
  Value key_value = {.numbers = {words[0], words[1]}, .dtype = DataType::kInt32};
  Values inputs = {FloatsValue(Floats(10000, 3.0f)), key_value};
  const Floats y = RunReference(d, inputs)[0].floats;
  // 7500 are expected with a standard deviation of 43; this is 5 of them.
  CHECK(std::abs(std::count(y.begin(), y.end(), 4.0f) - 7500) < 217);
  CHECK(std::count(y.begin(), y.end(), 0.0f) + std::count(y.begin(), y.end(), 4.0f) == 10000);
  for (size_t i = 0; i < y.size(); ++i) {
    CHECK((y[i] != 0.0f) == (PhiloxWord(key, i) >= uint32_t{1} << 30));
  }
}

}  // namespace
}  // namespace capstan::kernels
