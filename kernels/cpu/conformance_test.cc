// Compares the CPU backend with the reference, for every op, instruction set and awkward size.
// batch_norm_conformance_test.cc tests batch norm.
#include "kernels/cpu/testing/conformance.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/winograd.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/gradient_checks.h"
#include "kernels/testing/op_cases.h"

namespace capstan::kernels::conformance_test {
namespace {

using K = OpKind;

TEST_CASE("CPU convolution: forward agrees with the reference", "[kernels][cpu]") {
  for (const WindowCase& t : kWindowCases) {
    for (const bool bias : {false, true}) {
      for (const bool relu : {false, true}) {
        Conform(WindowDesc(K::kConvolutionForward, t, bias, relu));
      }
    }
  }
}

TEST_CASE("CPU convolution: gradients agree with the reference", "[kernels][cpu]") {
  for (const WindowCase& t : kWindowCases) {
    Conform(WindowDesc(K::kConvolutionBackwardData, t, false, false));
    for (const bool bias : {false, true}) {
      Conform(WindowDesc(K::kConvolutionBackwardWeights, t, bias, false));
    }
  }
}

// Sizes that the rule gives to Winograd's algorithm: whole and cut tiles, every padding, panels of
// several widths, and more tiles than a block of them has.
constexpr WindowCase kWinogradCases[] = {
    {4, 8, 8, 32, 48, 3, 1, 1},    {4, 9, 11, 64, 32, 3, 1, 0},  {2, 11, 14, 32, 32, 3, 1, 2},
    {2, 13, 16, 48, 80, 3, 1, 1},  {64, 1, 2, 32, 144, 3, 1, 1}, {5, 13, 9, 80, 64, 3, 1, 2},
    {5, 12, 12, 20, 50, 5, 1, 0},  {3, 13, 15, 17, 33, 5, 1, 2}, {70, 3, 2, 64, 16, 5, 1, 2},
    {2, 16, 13, 130, 66, 5, 1, 1}, {2, 9, 8, 31, 16, 5, 1, 4},
};

TEST_CASE("CPU convolution: Winograd's algorithm agrees with the reference", "[kernels][cpu]") {
  for (const WindowCase& t : kWinogradCases) {
    for (const bool bias : {false, true}) {
      for (const bool relu : {false, true}) {
        const OpDesc forward = WindowDesc(K::kConvolutionForward, t, bias, relu);
        CHECK(PrefersWinograd(forward));
        Conform(forward);
      }
      Conform(WindowDesc(K::kConvolutionBackwardWeights, t, bias, false));
    }
    Conform(WindowDesc(K::kConvolutionBackwardData, t, false, false));
  }
}

TEST_CASE("CPU pools: forward agrees with the reference", "[kernels][cpu]") {
  for (WindowCase t : kWindowCases) {
    t.out_c = t.c;
    Conform(WindowDesc(K::kMaxPoolForward, t, false, false));
    Conform(WindowDesc(K::kAveragePoolForward, t, false, false));
    Conform(WindowDesc(K::kAveragePoolBackward, t, false, false));
  }
}

TEST_CASE("CPU pools: the gradient of a max pool goes to the winners", "[kernels][cpu]") {
  std::vector<WindowCase> cases(std::begin(kWindowCases), std::end(kWindowCases));
  cases.push_back({2, 24, 24, 20, 20, 2, 2, 0});  // The fast path: windows tile the image.
  cases.push_back({3, 6, 6, 50, 50, 3, 3, 0});
  for (WindowCase t : cases) {
    t.out_c = t.c;
    const OpDesc forward = WindowDesc(K::kMaxPoolForward, t, false, false);
    OpDesc backward = forward;
    backward.kind = K::kMaxPoolBackward;
    REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(forward));
    const auto reference = MakeReferenceBackend();
    Operands x = MakeInputs(signature);
    const Operands y = RunTwice(*reference, forward, x, {});
    Operands inputs;
    inputs.Add(Uniform(5, signature.outputs[0].count), DataType::kFloat32);
    inputs.Add(y.values[1], DataType::kInt32);
    const Operands expected = RunTwice(*reference, backward, inputs, {});
    for (const InstructionSet set : kInstructionSets) {
      const auto cpu = MakeCpuBackend({.instruction_set_max = set});
      CheckSame(backward, expected, RunTwice(*cpu, backward, inputs, {}));
    }
  }
}

TEST_CASE("CPU pools: ties go to the first, NaN wins", "[kernels][cpu]") {
  for (const int64_t channels : {int64_t{1}, int64_t{20}}) {
    const OpDesc d =
        WindowDesc(K::kMaxPoolForward, {1, 2, 4, channels, channels, 2, 2, 0}, false, false);
    const auto nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> pixels = {1.0f, 1.0f, 2.0f, nan, 0.5f, 1.0f, 3.0f, 4.0f};
    Operands inputs;
    inputs.Add({}, DataType::kFloat32);
    for (const float pixel : pixels) {
      inputs.values[0].insert(inputs.values[0].end(), static_cast<size_t>(channels), pixel);
    }
    for (const auto& backend : AllBackends()) {
      Operands out = RunTwice(*backend, d, inputs, {});
      const std::vector<TensorView> views = out.Views();
      for (int64_t c = 0; c < channels; ++c) {
        CHECK(views[0].f32()[c] == 1.0f);
        CHECK(views[1].i32()[c] == 0);
        CHECK(std::isnan(views[0].f32()[channels + c]));
        CHECK(views[1].i32()[channels + c] == 1);
      }
    }
  }
}

TEST_CASE("CPU fully connected: forward and gradients agree with the reference", "[kernels][cpu]") {
  for (const int64_t n : {0, 1, 3, 64, 70}) {
    for (const int64_t c : {1, 64, 129}) {
      for (const int64_t units : {1, 10, 97}) {
        for (const bool bias : {false, true}) {
          OpDesc d = MatrixDesc(K::kFullyConnectedForward, n, c, units);
          d.has_bias = bias;
          Conform(d);
          d.fuse_relu = true;
          Conform(d);
          d.kind = K::kFullyConnectedBackwardWeights;
          Conform(d);
        }
        Conform(MatrixDesc(K::kFullyConnectedBackwardData, n, c, units));
      }
    }
  }
}

TEST_CASE("CPU element-wise ops: results agree with the reference", "[kernels][cpu]") {
  for (const int64_t n : {0, 1, 7, 33, 600}) {
    for (const int64_t c : {1, 3, 64, 67}) {
      for (const K kind : {K::kReluForward, K::kReluBackward, K::kAdd}) {
        Conform(MatrixDesc(kind, n, c, 1));
      }
      for (const OpDesc& activation : ActivationDescs(n, c)) Conform(activation);
      for (const float rate : {0.0f, 0.25f, 0.5f, 0.9f}) {
        OpDesc d = MatrixDesc(K::kDropoutForward, n, c, 1);
        d.dropout_rate = rate;
        Conform(d);
        d.kind = K::kDropoutBackward;
        Conform(d);
      }
    }
  }
}

TEST_CASE("CPU element-wise ops: ReLU works in place", "[kernels][cpu]") {
  const auto cpu = MakeCpuBackend();
  const OpDesc d = MatrixDesc(K::kReluForward, 3, 21, 1);
  REQUIRE_OK_AND_ASSIGN(const auto plan, cpu->Prepare(d));
  std::vector<float> x = Uniform(1, 63);
  const std::vector<float> before = x;
  const TensorView view = ViewOf(x.data(), 63);
  REQUIRE_OK(cpu->Run(*plan, {view}, {view}));
  for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == std::max(before[i], 0.0f));
}

TEST_CASE("CPU layer norm and RMS norm: all ops agree with the reference", "[kernels][cpu]") {
  for (const int64_t n : {0, 1, 7, 70}) {
    for (const int64_t c : {2, 3, 16, 65, 1000}) {
      for (const K kind :
           {K::kLayerNormForward, K::kLayerNormBackward, K::kRmsNormForward, K::kRmsNormBackward}) {
        OpDesc d = MatrixDesc(kind, n, c, 1);
        d.h = 2;
        Conform(d);
      }
    }
    Conform(MatrixDesc(K::kRmsNormForward, n, 1, 1));
    Conform(MatrixDesc(K::kRmsNormBackward, n, 1, 1));
  }
}

TEST_CASE("CPU softmax cross-entropy: both ops agree with the reference", "[kernels][cpu]") {
  for (const int64_t n : {0, 1, 7, 64}) {
    for (const int64_t classes : {1, 2, 10, 100}) {
      Conform(MatrixDesc(K::kSoftmaxCrossEntropyForward, n, classes, 1));
      Conform(MatrixDesc(K::kSoftmaxCrossEntropyBackward, n, classes, 1), {.scale = 0.125f});
    }
  }
}

TEST_CASE("CPU softmax cross-entropy: weights of classes agree with the reference",
          "[kernels][cpu]") {
  for (const int64_t n : {0, 1, 7}) {
    OpDesc d = MatrixDesc(K::kSoftmaxCrossEntropyForward, n, 10, 1);
    d.has_weights = true;
    Conform(d);
    d.kind = K::kSoftmaxCrossEntropyBackward;
    Conform(d, {.scale = 0.125f});
  }
}

TEST_CASE("CPU losses of numbers: all agree with the reference", "[kernels][cpu]") {
  for (const OutputLoss loss :
       {OutputLoss::kSquared, OutputLoss::kHuber, OutputLoss::kQuantile, OutputLoss::kSigmoid}) {
    for (const int64_t n : {0, 1, 7, 64}) {
      for (const int64_t outputs : {1, 3, 300}) {
        OpDesc d = MatrixDesc(K::kOutputLossForward, n, outputs, 1);
        d.loss = loss;
        d.loss_parameter = 0.25f;
        d.has_weights = loss == OutputLoss::kSigmoid && outputs > 1;
        Conform(d);
        d.kind = K::kOutputLossBackward;
        Conform(d, {.scale = 0.125f});
      }
    }
  }
}

TEST_CASE("CPU losses of numbers: values by their definition, at kinks and far out",
          "[kernels][cpu]") {
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    OutputLoss loss;
    float parameter, y, t, value, slope;
  };
  for (const Case& c :
       {Case{OutputLoss::kSquared, 0, 3, 1, 4, 4}, Case{OutputLoss::kHuber, 1, 3, 2, 0.5f, 1},
        Case{OutputLoss::kHuber, 1, 3, 7, 3.5f, -1},
        Case{OutputLoss::kQuantile, 0.25f, 1, 3, 0.5f, -0.25f},
        Case{OutputLoss::kQuantile, 0.25f, 3, 1, 1.5f, 0.75f},
        Case{OutputLoss::kQuantile, 0.25f, 2, 2, 0, 0}, Case{OutputLoss::kSigmoid, 0, 100, 1, 0, 0},
        Case{OutputLoss::kSigmoid, 0, 1000, 0, 1000, 1},
        Case{OutputLoss::kSigmoid, 0, -1000, 1, 1000, -1}}) {
    for (const auto& backend : AllBackends()) {
      OpDesc d = MatrixDesc(K::kOutputLossForward, 1, 1, 1);
      d.loss = c.loss;
      d.loss_parameter = c.parameter;
      Operands inputs;
      inputs.Add({c.y}, DataType::kFloat32);
      inputs.Add({c.t}, DataType::kFloat32);
      INFO(ToString(d) << " y " << c.y << " t " << c.t);
      const float value = RunTwice(*backend, d, inputs, {}).values[0][0];
      d.kind = K::kOutputLossBackward;
      const float slope = RunTwice(*backend, d, inputs, {}).values[0][0];
      CHECK(value == Approx(c.value).margin(1e-30));
      CHECK(slope == Approx(c.slope).margin(1e-30));
      CHECK(value < inf);
    }
  }
}

TEST_CASE("CPU softmax cross-entropy: huge logits do not overflow", "[kernels][cpu]") {
  for (const auto& backend : AllBackends()) {
    Operands inputs;
    inputs.Add({1e4f, -1e4f, 0.0f}, DataType::kFloat32);
    inputs.Add({0.0f}, DataType::kInt32);  // Label 0.
    const Operands out =
        RunTwice(*backend, MatrixDesc(K::kSoftmaxCrossEntropyForward, 1, 3, 1), inputs, {});
    CHECK(out.values[0] == std::vector<float>{1.0f, 0.0f, 0.0f});
    CHECK(out.values[1] == std::vector<float>{0.0f});
  }
}

TEST_CASE("CPU embedding: both ops agree with the reference", "[kernels][cpu]") {
  for (const int64_t n : {0, 1, 9}) {
    for (const int64_t dim : {1, 16, 37}) {
      OpDesc d = MatrixDesc(K::kEmbeddingForward, n, 3, dim);
      d.rows = 11;
      Conform(d);
      d.kind = K::kEmbeddingBackward;
      Conform(d);
    }
  }
}

TEST_CASE("CPU gradients: as finite differences have them", "[kernels][cpu]") {
  for (const InstructionSet set : kInstructionSets) {
    const auto cpu = MakeCpuBackend({.instruction_set_max = set});
    const auto run = [&](const OpDesc& desc, Operands& inputs, const RunOptions& options) {
      return RunTwice(*cpu, desc, inputs, options);
    };
    for (const GradientCheck& one : GradientChecks()) {
      INFO(one.name << ", instruction set " << static_cast<int>(set));
      one.check(run, kGradientTolerance);
    }
  }
}

TEST_CASE("CPU ops: NaN passes through, so that divergence is seen", "[kernels][cpu]") {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& backend : AllBackends()) {
    OpDesc d = MatrixDesc(K::kFullyConnectedForward, 2, 3, 20);
    d.fuse_relu = true;
    Operands inputs;
    inputs.Add({nan, 0.0f, 0.0f, 1.0f, 1.0f, 1.0f}, DataType::kFloat32);
    inputs.Add(Uniform(3, 60), DataType::kFloat32);
    const Operands y = RunTwice(*backend, d, inputs, {});
    for (size_t i = 0; i < 20; ++i) {
      CHECK(std::isnan(y.values[0][i]));
      CHECK_FALSE(std::isnan(y.values[0][20 + i]));
    }
    Operands x;
    x.Add({nan, -1.0f, 2.0f}, DataType::kFloat32);
    const Operands relu = RunTwice(*backend, MatrixDesc(K::kReluForward, 3, 1, 1), x, {});
    CHECK(std::isnan(relu.values[0][0]));
    CHECK(relu.values[0][1] == 0.0f);
  }
}

}  // namespace
}  // namespace capstan::kernels::conformance_test
