// The CPU backend against the reference, for every op, instruction set and awkward size.
//
// Tolerance. A sum of K products is off by at most K * 2^-24 times the sum of the products'
// magnitudes; errors of random sign grow with sqrt(K), so the bound used is
//   |cpu - reference| <= 2^-24 * (8 + 2 * sqrt(K)) * magnitude,
// with the magnitude of a sum of K terms of inputs in [-1, 1): sqrt(K). Ops without sums must agree
// to a few roundings, and those that only move or select values to the bit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/gradient_checks.h"
#include "kernels/testing/op_cases.h"

namespace capstan::kernels {
namespace {

using K = OpKind;

constexpr InstructionSet kInstructionSets[] = {InstructionSet::kBaseline, InstructionSet::kAvx2,
                                               InstructionSet::kAvx512};

Operands RunOp(Backend& backend, const OpDesc& desc, Operands& inputs, const RunOptions& options) {
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  REQUIRE_OK_AND_ASSIGN(const auto plan, backend.Prepare(desc));
  Operands outputs = MakeOutputs(signature);
  const std::vector<TensorView> in = inputs.Views();
  const std::vector<TensorView> out = outputs.Views();
  REQUIRE_OK(backend.Run(*plan, in, out, options));
  const Operands first = outputs;
  REQUIRE_OK(backend.Run(*plan, in, out, options));
  for (size_t i = 0; i < first.values.size(); ++i) {
    INFO(ToString(desc) << " output " << signature.outputs[i].name << " of a second run");
    const size_t bytes = first.values[i].size() * 4;
    REQUIRE(
        (bytes == 0 || std::memcmp(first.values[i].data(), outputs.values[i].data(), bytes) == 0));
  }
  return outputs;
}

// GCC's OpenMP library is not instrumented, so ThreadSanitizer does not see its barriers and takes
// every hand-over between threads for a race.
#if defined(CAPSTAN_TSAN)  // From --config=tsan.
constexpr int kThreadsMany = 1;
#else
constexpr int kThreadsMany = 2;
#endif

// The reference, and the CPU backend with each instruction set.
std::vector<std::unique_ptr<Backend>> AllBackends() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeReferenceBackend());
  for (const InstructionSet set : kInstructionSets) {
    backends.push_back(MakeCpuBackend({.instruction_set_max = set}));
  }
  return backends;
}

// The number of products in the longest sum of an op's output.
int64_t TermsOf(const OpDesc& d, size_t output) {
  switch (d.kind) {
    case K::kConvolutionForward:
      return d.kernel * d.kernel * d.c;
    case K::kConvolutionBackwardData:
      return d.kernel * d.kernel * d.out_c;
    case K::kConvolutionBackwardWeights:
      return d.n * d.out_h * d.out_w;
    case K::kFullyConnectedForward:
      return d.c;
    case K::kFullyConnectedBackwardData:
      return d.out_c;
    case K::kFullyConnectedBackwardWeights:
      return d.n;
    case K::kAveragePoolForward:
      return 1;
    case K::kAveragePoolBackward:
    case K::kMaxPoolBackward:
      return d.kernel * d.kernel;
    case K::kBatchNormForward:
      return 16;  // The deviations are divided by small standard deviations.
    case K::kBatchNormInference:
      return 16;
    case K::kBatchNormBackward:
      return output == 0 ? 64 : 4 * d.n * d.h * d.w;
    case K::kEmbeddingBackward:
      return d.n * d.c;
    default:
      return 1;
  }
}

bool IsExact(K kind) {
  return kind == K::kMaxPoolForward || kind == K::kReluForward || kind == K::kReluBackward ||
         kind == K::kAdd || kind == K::kEmbeddingForward;
}

void CheckSame(const OpDesc& desc, const Operands& expected, const Operands& actual) {
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const std::vector<float>& want = expected.values[i];
    const std::vector<float>& got = actual.values[i];
    const auto terms = static_cast<double>(std::max<int64_t>(1, TermsOf(desc, i)));
    // Dropout multiplies what it keeps; its rate is 0 in the other ops.
    const double magnitude = std::sqrt(terms) / (1.0 - double{desc.dropout_rate});
    const double tolerance =
        IsExact(desc.kind) ? 0.0 : 0x1p-24 * (8.0 + 2.0 * std::sqrt(terms)) * magnitude;
    double worst = 0.0;
    size_t where = 0;
    for (size_t j = 0; j < want.size(); ++j) {
      double error = std::fabs(double{want[j]} - double{got[j]});
      if (std::memcmp(&want[j], &got[j], 4) == 0) error = 0.0;
      if (!(error <= worst)) {
        worst = error;
        where = j;
      }
    }
    INFO(ToString(desc) << " output " << i << " element " << where);
    if (worst > tolerance || std::isnan(worst)) {
      INFO("expected " << want[where] << " got " << got[where]);
      REQUIRE(worst <= tolerance);
    }
  }
  SUCCEED();
}

// Whether oneDNN may compute the op (any channels that fill vectors); its sums may depend on
// threads.
bool MayUseOnednn(const OpDesc& d) {
  return d.kind <= K::kConvolutionBackwardWeights && d.c % 16 == 0 && d.out_c % 16 == 0;
}

// Runs `desc` on the reference and on every instruction set that this processor has, with one
// thread and two; threads must not change a bit of what is computed without oneDNN.
void Conform(const OpDesc& desc, const RunOptions& options = {}) {
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  Operands inputs = MakeInputs(signature);
  const auto reference = MakeReferenceBackend();
  const Operands expected = RunOp(*reference, desc, inputs, options);
  for (const InstructionSet set : kInstructionSets) {
    const auto one = MakeCpuBackend({.threads = 1, .instruction_set_max = set});
    const Operands actual = RunOp(*one, desc, inputs, options);
    INFO("instruction set " << static_cast<int>(set));
    CheckSame(desc, expected, actual);
    const auto two = MakeCpuBackend({.threads = kThreadsMany, .instruction_set_max = set});
    const Operands threaded = RunOp(*two, desc, inputs, options);
    CheckSame(desc, expected, threaded);
    if (set == InstructionSet::kAvx512 && MayUseOnednn(desc)) continue;
    for (size_t i = 0; i < actual.values.size(); ++i) {
      const size_t bytes = actual.values[i].size() * 4;
      REQUIRE((bytes == 0 ||
               std::memcmp(actual.values[i].data(), threaded.values[i].data(), bytes) == 0));
    }
  }
}

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
  cases.push_back({2, 24, 24, 20, 20, 2, 2, 0});  // Windows tile the image: the fast path.
  cases.push_back({3, 6, 6, 50, 50, 3, 3, 0});
  for (WindowCase t : cases) {
    t.out_c = t.c;
    const OpDesc forward = WindowDesc(K::kMaxPoolForward, t, false, false);
    OpDesc backward = forward;
    backward.kind = K::kMaxPoolBackward;
    REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(forward));
    const auto reference = MakeReferenceBackend();
    Operands x = MakeInputs(signature);
    const Operands y = RunOp(*reference, forward, x, {});
    Operands inputs;
    inputs.Add(Uniform(5, signature.outputs[0].count), DataType::kFloat32);
    inputs.Add(y.values[1], DataType::kInt32);
    const Operands expected = RunOp(*reference, backward, inputs, {});
    for (const InstructionSet set : kInstructionSets) {
      const auto cpu = MakeCpuBackend({.instruction_set_max = set});
      CheckSame(backward, expected, RunOp(*cpu, backward, inputs, {}));
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
      Operands out = RunOp(*backend, d, inputs, {});
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

TEST_CASE("CPU batch norm: all three ops agree with the reference", "[kernels][cpu]") {
  for (const WindowCase& t : kWindowCases) {
    for (const K kind : {K::kBatchNormForward, K::kBatchNormInference, K::kBatchNormBackward}) {
      // A lone position has no variance: its gradient is rounding noise times 1 / sqrt(epsilon).
      if (t.n * t.h * t.w == 1) continue;
      OpDesc d = WindowDesc(kind, t, false, false);
      d.epsilon = 1e-3f;
      Conform(d);
    }
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

TEST_CASE("CPU softmax cross-entropy: huge logits do not overflow", "[kernels][cpu]") {
  for (const auto& backend : AllBackends()) {
    Operands inputs;
    inputs.Add({1e4f, -1e4f, 0.0f}, DataType::kFloat32);
    inputs.Add({0.0f}, DataType::kInt32);  // Label 0.
    const Operands out =
        RunOp(*backend, MatrixDesc(K::kSoftmaxCrossEntropyForward, 1, 3, 1), inputs, {});
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
      return RunOp(*cpu, desc, inputs, options);
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
    const Operands y = RunOp(*backend, d, inputs, {});
    for (size_t i = 0; i < 20; ++i) {
      CHECK(std::isnan(y.values[0][i]));
      CHECK_FALSE(std::isnan(y.values[0][20 + i]));
    }
    Operands x;
    x.Add({nan, -1.0f, 2.0f}, DataType::kFloat32);
    const Operands relu = RunOp(*backend, MatrixDesc(K::kReluForward, 3, 1, 1), x, {});
    CHECK(std::isnan(relu.values[0][0]));
    CHECK(relu.values[0][1] == 0.0f);
  }
}

}  // namespace
}  // namespace capstan::kernels
