// The rules that kernels and host share, on the host, against the specification of each: the wire's
// numbers, the servers' optimizers, the reference backend. The kernels compile the same lines.
#include "kernels/cuda/element_rules.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "common/wire/number_format.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/op_cases.h"
#include "server/optimizer/step_scalars.h"
#include "server/optimizer/testing/reference.h"
#include "tests/gpu/host_codecs.h"

namespace capstan::gpu::element_rules_test {
namespace {

using kernels::cuda::UpdateRule;
using kernels::cuda::UpdateRuleTraits;
using kernels::cuda::UpdateScalars;

// Every sign and exponent with mantissas around the places where rounding turns, and random ones.
std::vector<float> AwkwardFloats() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 512; ++high) {
    for (const uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u,
                               0x8001u, 0x17fffu, 0x18000u, 0x7fefffu, 0x7ff000u, 0x7fffffu}) {
      values.push_back(kernels::cuda::FloatOf(high << 23 | low));
    }
  }
  for (uint64_t i = 0; i < 100000; ++i) values.push_back(kernels::cuda::FloatOf(PhiloxWord(7, i)));
  return values;
}

void CheckNumbers(NumberFormat format, uint16_t (*to)(float), float (*from)(uint16_t)) {
  const std::vector<float> values = AwkwardFloats();
  std::vector<uint16_t> halves(values.size());
  EncodeNumbers(format, values, reinterpret_cast<char*>(halves.data()));
  for (size_t i = 0; i < values.size(); ++i) {
    INFO("bits " << std::hex << kernels::cuda::BitsOf(values[i]));
    REQUIRE(to(values[i]) == halves[i]);
  }
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> decoded(all.size());
  DecodeNumbers(format, reinterpret_cast<const char*>(all.data()), absl::MakeSpan(decoded));
  for (size_t i = 0; i < all.size(); ++i) {
    INFO("half " << std::hex << i);
    REQUIRE(kernels::cuda::BitsOf(from(all[i])) == kernels::cuda::BitsOf(decoded[i]));
  }
}

TEST_CASE("Element rules: bf16 is the wire's, bit for bit", "[gpu][host]") {
  CheckNumbers(NumberFormat::kBf16, kernels::cuda::ToBf16, kernels::cuda::FromBf16);
}

TEST_CASE("Element rules: fp16 is the wire's, bit for bit", "[gpu][host]") {
  CheckNumbers(NumberFormat::kFp16, kernels::cuda::ToFp16, kernels::cuda::FromFp16);
}

template <UpdateRule kRule>
void CheckUpdates(server::OptimizerConfig config) {
  constexpr size_t kCount = 1000;
  std::vector<float> weights = kernels::Uniform(1, kCount);
  std::vector<float> s0(kCount);
  std::vector<float> s1(kCount);
  std::vector<float> s2(kCount);
  std::vector<float> expected = weights;
  std::vector<float> e0 = s0;
  std::vector<float> e1 = s1;
  std::vector<float> e2 = s2;
  std::vector<float*> slots = {e0.data(), e1.data(), e2.data()};
  slots.resize(static_cast<size_t>(StateSlotsOf(kRule)));
  for (int64_t step = 0; step < 4; ++step) {
    const std::vector<float> gradient = kernels::Uniform(static_cast<uint64_t>(step) + 5, kCount);
    server::ApplyReference(config, step, kCount, expected.data(), gradient.data(), slots,
                           expected.data());
    const UpdateScalars c = server::MakeStepScalars(config, step);
    for (size_t i = 0; i < kCount; ++i) {
      weights[i] =
          kernels::cuda::Updated<kRule>(c, weights[i], gradient[i], &s0[i], &s1[i], &s2[i]);
    }
    REQUIRE(std::memcmp(weights.data(), expected.data(), kCount * 4) == 0);
    REQUIRE(std::memcmp(s0.data(), e0.data(), kCount * 4) == 0);
    REQUIRE(std::memcmp(s1.data(), e1.data(), kCount * 4) == 0);
    REQUIRE(std::memcmp(s2.data(), e2.data(), kCount * 4) == 0);
  }
}

TEST_CASE("Element rules: updates have the bits of the servers' reference", "[gpu][host]") {
  for (const float decay : {0.0f, 0.01f}) {
    for (const float clip : {0.0f, 0.5f}) {
      server::OptimizerConfig config;
      config.learning_rate = 0.1f;
      config.weight_decay = decay;
      config.clip_value = clip;
      for (const UpdateRuleTraits& traits : kernels::cuda::kUpdateRules) {
        config.kind = traits.rule;
        // FTRL has its own L2.
        if (config.kind == UpdateRule::kFtrl && decay != 0.0f) continue;
        INFO("rule " << traits.name << " decay " << decay << " clip " << clip);
        WithRule(traits.rule, [&](auto rule) {
          constexpr UpdateRuleTraits kTraits = kernels::cuda::TraitsOf(rule());
          // Norms of tensors come before a layer-wise rule; what has no name is no rule of a job.
          if constexpr (!kTraits.layer_wise && *kTraits.name != 0) CheckUpdates<rule()>(config);
        });
      }
    }
  }
}

TEST_CASE("Element rules: dropout keeps what the reference keeps", "[gpu][host]") {
  const auto reference = kernels::MakeReferenceBackend();
  for (const float rate : {0.0f, 0.3f, 0.9f}) {
    kernels::OpDesc d = kernels::MatrixDesc(kernels::OpKind::kDropoutForward, 100, 10, 1);
    d.dropout_rate = rate;
    REQUIRE_OK_AND_ASSIGN(const auto plan, reference->Prepare(d));
    std::vector<float> x = kernels::Uniform(3, 1000);
    std::vector<float> y(1000);
    auto key = WordsOfKey(77);
    REQUIRE_OK(reference->Run(
        *plan, {kernels::ViewOf(x.data(), 1000), kernels::ViewOf(key.data(), kKeyWords)},
        {kernels::ViewOf(y.data(), 1000)}));
    const kernels::cuda::DropoutRule rule = kernels::cuda::DropoutRuleOf(rate);
    for (size_t i = 0; i < x.size(); ++i) {
      const float got = kernels::cuda::Dropout(rule, PhiloxWord(77, i), x[i]);
      CHECK((got == 0.0f) == (y[i] == 0.0f));
      CHECK(std::fabs(got - y[i]) <= 0x1p-22f * std::fabs(y[i]));  // Multiplied, not divided.
    }
  }
}

TEST_CASE("Element rules: ReLU lets NaN through", "[gpu][host]") {
  CHECK(std::isnan(kernels::cuda::Relu(std::numeric_limits<float>::quiet_NaN())));
  CHECK(kernels::cuda::Relu(-1.0f) == 0.0f);
  CHECK(kernels::cuda::Relu(2.0f) == 2.0f);
  CHECK(kernels::cuda::ReluGradient(0.0f, 3.0f) == 0.0f);
  CHECK(kernels::cuda::ReluGradient(1.0f, 3.0f) == 3.0f);
}

TEST_CASE("Int8 codes: what is sent and what is kept back add up to the gradient", "[gpu][host]") {
  const std::vector<float> gradient = kernels::Uniform(11, 1000);
  const std::vector<float> before = kernels::Uniform(12, 1000);
  const Int8Result result = QuantizeOnHost(gradient, before);
  REQUIRE(result.scales.size() == 4);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float scale = result.scales[i / kernels::cuda::kInt8Block];
    const float sent = kernels::cuda::FromInt8(result.codes[i], scale);
    const float whole = gradient[i] + before[i];
    CHECK(std::fabs(result.residual[i]) <= 0.5f * scale * 1.00001f);
    CHECK(std::fabs(sent + result.residual[i] - whole) <= 0x1p-23f * std::fabs(whole));
  }
}

TEST_CASE("Int8 codes: zeros, tiny numbers and what is not finite", "[gpu][host]") {
  const Int8Result zeros = QuantizeOnHost(std::vector<float>(3), std::vector<float>(3));
  CHECK(zeros.scales == std::vector<float>{0.0f});
  CHECK(zeros.codes == std::vector<int8_t>{0, 0, 0});
  CHECK(zeros.residual == std::vector<float>(3));
  // The scale of so small a number is denormal: codes stay within their range all the same.
  const Int8Result tiny = QuantizeOnHost({0x1p-143f, -0x1p-143f}, {0.0f, 0.0f});
  CHECK(std::abs(int{tiny.codes[0]}) <= 127);
  CHECK(tiny.codes[0] == -tiny.codes[1]);
  const float infinity = std::numeric_limits<float>::infinity();
  const Int8Result infinite = QuantizeOnHost({1.0f, infinity}, {0.0f, 0.0f});
  CHECK(std::isnan(infinite.scales[0]));
  CHECK(infinite.codes == std::vector<int8_t>{0, 0});
}

TEST_CASE("Top-k: the largest are sent, the first of equal ones, the rest is kept", "[gpu][host]") {
  const TopKResult result =
      SelectTopKOnHost({1.0f, -3.0f, 2.0f, 3.0f, -2.0f}, {0.0f, 0.0f, 0.0f, 0.0f, 0.5f}, 3);
  CHECK(result.indices == std::vector<int32_t>{1, 2, 3});
  CHECK(result.values == std::vector<float>{-3.0f, 2.0f, 3.0f});
  CHECK(result.residual == std::vector<float>{1.0f, 0.0f, 0.0f, 0.0f, -1.5f});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(SelectTopKOnHost({9.0f, nan}, {0.0f, 0.0f}, 1).indices == std::vector<int32_t>{1});
}

}  // namespace
}  // namespace capstan::gpu::element_rules_test
