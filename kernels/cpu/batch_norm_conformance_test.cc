// Compares the CPU backend's batch norm, plain and fused with an addend and ReLU, with the
// reference and with a sequence of separate ops.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/testing/conformance.h"
#include "kernels/op_check.h"
#include "kernels/testing/op_cases.h"

namespace capstan::kernels::batch_norm_conformance_test {
namespace {

using K = OpKind;

TEST_CASE("CPU batch norm: all three ops agree with the reference", "[kernels][cpu]") {
  for (const WindowCase& t : kWindowCases) {
    for (const K kind : {K::kBatchNormForward, K::kBatchNormInference, K::kBatchNormBackward}) {
      // A single position has no variance: its gradient is rounding noise times 1 / sqrt(epsilon).
      if (t.n * t.h * t.w == 1) continue;
      for (const NormFusion fusion : kNormFusions) Conform(BatchNormDesc(kind, t, fusion));
    }
  }
}

// Computes the fused op's y from batch norm's result `normal`: adds the addend, if there is one,
// and applies ReLU, as separate ops.
std::vector<float> FollowedByRelu(Backend& cpu, const std::vector<float>& normal,
                                  const std::vector<float>* addend) {
  const auto count = static_cast<int64_t>(normal.size());
  Operands sum;
  sum.Add(normal, DataType::kFloat32);
  if (addend != nullptr) {
    Operands parts = sum;
    parts.Add(*addend, DataType::kFloat32);
    sum = RunTwice(cpu, MatrixDesc(K::kAdd, count, 1, 1), parts, {});
  }
  return RunTwice(cpu, MatrixDesc(K::kReluForward, count, 1, 1), sum, {}).values[0];
}

// Splits the inputs of the fused op, gives them to the plain op and to the ops that follow it, and
// compares the results.
void CheckFusedForward(Backend& cpu, K kind, const WindowCase& t, NormFusion fusion) {
  const OpDesc desc = BatchNormDesc(kind, t, fusion);
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  Operands inputs = MakeInputs(signature);
  const Operands fused = RunTwice(cpu, desc, inputs, {});
  std::vector<float> addend;
  if (fusion.addend) {
    addend = inputs.values.back();
    inputs.values.pop_back();
  }
  Operands plain = RunTwice(cpu, BatchNormDesc(kind, t, {}), inputs, {});
  plain.values[0] = FollowedByRelu(cpu, plain.values[0], fusion.addend ? &addend : nullptr);
  INFO(ToString(desc));
  REQUIRE(fused.values.size() == plain.values.size());
  for (size_t i = 0; i < plain.values.size(); ++i) {
    REQUIRE(SameBits(fused.values[i], plain.values[i]));
  }
}

void CheckFusedBackward(Backend& cpu, const WindowCase& t, NormFusion fusion) {
  const OpDesc forward = BatchNormDesc(K::kBatchNormForward, t, fusion);
  const OpDesc backward = BatchNormDesc(K::kBatchNormBackward, t, fusion);
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(forward));
  Operands given = MakeInputs(signature);
  const Operands result = RunTwice(cpu, forward, given, {});
  const std::vector<float> dy = Uniform(5, signature.outputs[0].count);
  const std::vector<float> dy2 = Uniform(6, signature.outputs[0].count);
  Operands both;
  both.Add(dy, DataType::kFloat32);
  both.Add(dy2, DataType::kFloat32);
  const OpDesc add = MatrixDesc(K::kAdd, static_cast<int64_t>(dy.size()), 1, 1);
  Operands mask;
  mask.Add(result.values[0], DataType::kFloat32);
  mask.Add(fusion.dy2 ? RunTwice(cpu, add, both, {}).values[0] : dy, DataType::kFloat32);
  const OpDesc relu = MatrixDesc(K::kReluBackward, static_cast<int64_t>(dy.size()), 1, 1);
  const std::vector<float> dsum = RunTwice(cpu, relu, mask, {}).values[0];
  Operands inputs;
  for (const std::vector<float>& values :
       {given.values[0], dsum, given.values[1], result.values[1], result.values[2]}) {
    inputs.Add(values, DataType::kFloat32);
  }
  Operands plain = RunTwice(cpu, BatchNormDesc(K::kBatchNormBackward, t, {}), inputs, {});
  if (fusion.addend) plain.Add(dsum, DataType::kFloat32);
  inputs.values[1] = dy;
  inputs.Add(fusion.addend ? result.values[0] : given.values[2], DataType::kFloat32);
  if (fusion.dy2) inputs.Add(dy2, DataType::kFloat32);
  const Operands fused = RunTwice(cpu, backward, inputs, {});
  INFO(ToString(backward));
  REQUIRE(fused.values.size() == plain.values.size());
  for (size_t i = 0; i < plain.values.size(); ++i) {
    REQUIRE(SameBits(fused.values[i], plain.values[i]));
  }
}

TEST_CASE("CPU batch norm: fused with ReLU and an addend, it has the bits of separate ops",
          "[kernels][cpu]") {
  for (const InstructionSet set : kInstructionSets) {
    const auto cpu = MakeCpuBackend({.instruction_set_max = set});
    INFO("instruction set " << static_cast<int>(set));
    for (const WindowCase& t : kWindowCases) {
      for (const bool addend : {false, true}) {
        CheckFusedForward(*cpu, K::kBatchNormForward, t, {true, addend});
        CheckFusedForward(*cpu, K::kBatchNormInference, t, {true, addend});
        CheckFusedBackward(*cpu, t, {true, addend});
      }
      CheckFusedBackward(*cpu, t, {true, true, true});
    }
  }
}

TEST_CASE("CPU batch norm: y may lie in place of the addend, dsum in place of dy or dy2",
          "[kernels][cpu]") {
  struct InPlace {
    K kind;
    size_t input, output;
  };
  for (const auto& backend : AllBackends()) {
    for (const InPlace t :
         {InPlace{K::kBatchNormForward, 3, 0}, InPlace{K::kBatchNormInference, 5, 0},
          InPlace{K::kBatchNormBackward, 1, 3}, InPlace{K::kBatchNormBackward, 6, 3}}) {
      const OpDesc desc = BatchNormDesc(t.kind, {3, 12, 12, 20, 1, 1, 1, 0}, {true, true, true});
      REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
      Operands inputs = MakeInputs(signature);
      const Operands expected = RunTwice(*backend, desc, inputs, {});
      Operands outputs = MakeOutputs(signature);
      std::vector<TensorView> out = outputs.Views();
      out[t.output] = inputs.Views()[t.input];
      REQUIRE_OK_AND_ASSIGN(const auto plan, backend->Prepare(desc));
      REQUIRE_OK(backend->Run(*plan, inputs.Views(), out));
      outputs.values[t.output] = inputs.values[t.input];
      INFO(backend->Name() << " " << ToString(desc));
      for (size_t i = 0; i < expected.values.size(); ++i) {
        CHECK(SameBits(expected.values[i], outputs.values[i]));
      }
    }
  }
}

// 5 channels leave vectors partly filled; 20 fill one or more vectors of some instruction sets.
constexpr int64_t kChannels[] = {5, 20};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

WindowCase FourPositions(int64_t channels) { return {1, 2, 2, channels, 1, 1, 1, 0}; }

Operands MakeInputsOf(const OpDesc& desc) {
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  return MakeInputs(signature);
}

// The elements that are NaN, with four positions: x has NaN in the last channel of the first
// position, an addend in the first channel of the second.
struct NanPlaces {
  explicit NanPlaces(int64_t channels)
      : of_x(static_cast<size_t>(channels) - 1), of_addend(static_cast<size_t>(channels)) {}
  size_t of_x, of_addend;
};

TEST_CASE("CPU batch norm: NaN passes through forward, fused or not", "[kernels][cpu]") {
  const auto backends = AllBackends();
  for (const int64_t channels : kChannels) {
    const NanPlaces nan(channels);
    for (const NormFusion fusion : kNormFusions) {
      for (const K kind : {K::kBatchNormForward, K::kBatchNormInference}) {
        const OpDesc desc = BatchNormDesc(kind, FourPositions(channels), fusion);
        Operands inputs = MakeInputsOf(desc);
        inputs.values[0][nan.of_x] = kNan;
        if (fusion.addend) inputs.values.back()[nan.of_addend] = kNan;
        for (const auto& backend : backends) {
          INFO(backend->Name() << " " << ToString(desc));
          const std::vector<float> y = RunTwice(*backend, desc, inputs).values[0];
          for (size_t i = 0; i < y.size(); ++i) {
            // The batch's moments spread NaN over the channel.
            const bool from_x = kind == K::kBatchNormForward
                                    ? (i + 1) % static_cast<size_t>(channels) == 0
                                    : i == nan.of_x;
            CHECK(std::isnan(y[i]) == (from_x || (fusion.addend && i == nan.of_addend)));
          }
        }
      }
    }
  }
}

TEST_CASE("CPU batch norm: where ReLU gave NaN its gradient is 0", "[kernels][cpu]") {
  const auto backends = AllBackends();
  for (const int64_t channels : kChannels) {
    for (const bool addend : {false, true}) {
      const OpDesc desc =
          BatchNormDesc(K::kBatchNormBackward, FourPositions(channels), {true, addend});
      for (const size_t where : {NanPlaces(channels).of_x, NanPlaces(channels).of_addend}) {
        Operands masked = MakeInputsOf(desc);
        Operands inputs = masked;
        masked.values[1][where] = 0.0f;               // dy
        inputs.values[addend ? 5 : 0][where] = kNan;  // y, or x, from which y's sign follows
        for (const auto& backend : backends) {
          INFO(backend->Name() << " " << ToString(desc) << " element " << where);
          const Operands expected = RunTwice(*backend, desc, masked);
          const Operands actual = RunTwice(*backend, desc, inputs);
          // NaN in x itself also appears in the other outputs of its channel.
          CHECK(SameBits(actual.values[2], expected.values[2]));  // dshift
          if (!addend) continue;
          CHECK(actual.values[3][where] == 0.0f);
          for (const size_t i : {0, 1, 3}) CHECK(SameBits(actual.values[i], expected.values[i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace capstan::kernels::batch_norm_conformance_test
