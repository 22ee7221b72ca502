#include "kernels/cpu/testing/conformance.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/testing/status_matchers.h"
#include "kernels/cpu/winograd.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_backend.h"

namespace capstan::kernels {
namespace {

using K = OpKind;

// GCC's OpenMP library is not instrumented, so ThreadSanitizer does not see its barriers and
// reports every exchange between threads as a race.
#if defined(CAPSTAN_TSAN)  // Set by --config=tsan.
constexpr int kThreadsMany = 1;
#else
constexpr int kThreadsMany = 2;
#endif

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
    case K::kLayerNormForward:
    case K::kRmsNormForward:
      return 16;  // The deviations are divided by small standard deviations.
    case K::kBatchNormInference:
      return 16;
    case K::kBatchNormBackward:
    case K::kLayerNormBackward:
    case K::kRmsNormBackward:
      return output == 0 ? 64 : 4 * d.n * d.h * d.w;
    case K::kEmbeddingBackward:
      return d.n * d.c;
    default:
      return 1;
  }
}

bool IsExact(K kind, size_t output) {
  if (kind == K::kBatchNormBackward) return output == 3;  // dsum
  return kind == K::kMaxPoolForward || kind == K::kReluForward || kind == K::kReluBackward ||
         kind == K::kAdd || kind == K::kEmbeddingForward;
}

// True if oneDNN may compute the op: its channels fill vectors. Then sums may depend on threads.
bool MayUseOnednn(const OpDesc& d) {
  return !PrefersWinograd(d) && d.kind <= K::kConvolutionBackwardWeights && d.c % 16 == 0 &&
         d.out_c % 16 == 0;
}

}  // namespace

std::vector<std::unique_ptr<Backend>> AllBackends() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeReferenceBackend());
  for (const InstructionSet set : kInstructionSets) {
    backends.push_back(MakeCpuBackend({.instruction_set_max = set}));
  }
  return backends;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

Operands RunTwice(Backend& backend, const OpDesc& desc, Operands& inputs,
                  const RunOptions& options) {
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
    REQUIRE(SameBits(first.values[i], outputs.values[i]));
  }
  return outputs;
}

void CheckSame(const OpDesc& desc, const Operands& expected, const Operands& actual) {
  REQUIRE(expected.values.size() == actual.values.size());
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const std::vector<float>& want = expected.values[i];
    const std::vector<float>& got = actual.values[i];
    REQUIRE(want.size() == got.size());
    const auto terms = static_cast<double>(std::max<int64_t>(1, TermsOf(desc, i)));
    // Dropout multiplies the values that it keeps; the rate is 0 in the other ops.
    const double magnitude = std::sqrt(terms) / (1.0 - double{desc.dropout_rate});
    const double tolerance =
        IsExact(desc.kind, i) ? 0.0 : 0x1p-24 * (8.0 + 2.0 * std::sqrt(terms)) * magnitude;
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

void Conform(const OpDesc& desc, const RunOptions& options) {
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  Operands inputs = MakeInputs(signature);
  ClearGradientsNearZero(desc, inputs);
  const auto reference = MakeReferenceBackend();
  const Operands expected = RunTwice(*reference, desc, inputs, options);
  for (const InstructionSet set : kInstructionSets) {
    const auto one = MakeCpuBackend({.threads = 1, .instruction_set_max = set});
    const Operands actual = RunTwice(*one, desc, inputs, options);
    INFO("instruction set " << static_cast<int>(set));
    CheckSame(desc, expected, actual);
    const auto two = MakeCpuBackend({.threads = kThreadsMany, .instruction_set_max = set});
    const Operands threaded = RunTwice(*two, desc, inputs, options);
    CheckSame(desc, expected, threaded);
    if (set == InstructionSet::kAvx512 && MayUseOnednn(desc)) continue;
    for (size_t i = 0; i < actual.values.size(); ++i) {
      REQUIRE(SameBits(actual.values[i], threaded.values[i]));
    }
  }
}

}  // namespace capstan::kernels
