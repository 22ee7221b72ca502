// The GPU's own operations (device_ops.h) against the same rules on the host, bit for bit; its
// graphs, its errors, and its memory.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/cuda/device_ops.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/graph_recorder.h"
#include "kernels/testing/op_cases.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/host_codecs.h"
#include "tests/gpu/test_gpu.h"

namespace capstan::gpu::own_conformance_test {
namespace {

namespace cuda = kernels::cuda;
using cuda::Compute;
using cuda::CudaBackend;
using cuda::Number;
using kernels::Uniform;
using K = kernels::OpKind;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// 0, 1, odd, a block, more than one, more than the norm's grid.
const std::vector<int64_t>& Sizes() {
  static const std::vector<int64_t> kAll = {0, 1, 3, 255, 256, 257, 1025, 100003, 3000001};
  static const std::vector<int64_t> kSmall = {0, 1, 3, 255, 256, 257, 1025, 20011};
  return IsSmall() ? kSmall : kAll;
}

// A vector in the GPU's memory; `skew` elements behind an aligned address.
template <typename T>
class DeviceVector {
 public:
  DeviceVector(CudaBackend& gpu, const std::vector<T>& values, int64_t skew = 0)
      : count_(values.size()),
        array_(gpu, static_cast<int64_t>(values.size() * sizeof(T)),
               skew * static_cast<int64_t>(sizeof(T))) {
    array_.Upload(values.data());
  }
  T* data() const { return static_cast<T*>(array_.data()); }
  std::vector<T> Get() const {
    std::vector<T> values(count_);
    array_.Download(values.data());
    return values;
  }

 private:
  const size_t count_;
  Array array_;
};

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

uint16_t ToHalf(Number number, float value) {
  return number == Number::kBf16 ? cuda::ToBf16(value) : cuda::ToFp16(value);
}

TEST_CASE("GPU cast: to 16 bits and back, with the host's bits", "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  for (const int64_t n : Sizes()) {
    std::vector<float> values = Uniform(1, n);
    for (size_t i = 0; i < values.size(); i += 7) {  // Every exponent, NaN and infinities.
      values[i] = cuda::FloatOf(PhiloxWord(2, i));
    }
    for (const Number to : {Number::kBf16, Number::kFp16}) {
      for (const int64_t skew : {0, 1}) {
        const DeviceVector<float> in(*gpu, values, skew);
        const DeviceVector<uint16_t> out(*gpu, std::vector<uint16_t>(values.size()), skew);
        REQUIRE_OK(
            gpu->Cast({.n = n, .in = in.data(), .out = out.data(), .to = to, .scale = 0.5f}));
        std::vector<uint16_t> expected;
        for (const float value : values) expected.push_back(ToHalf(to, value * 0.5f));
        std::vector<uint16_t> got = out.Get();
        // A NaN's payload is the multiplication's, which GPUs do not keep.
        for (size_t i = 0; i < got.size(); ++i) {
          if (std::isnan(values[i])) got[i] = expected[i];
        }
        REQUIRE(SameBits(got, expected));
        const DeviceVector<float> back(*gpu, values, skew);
        REQUIRE_OK(gpu->Cast({.n = n, .in = out.data(), .out = back.data(), .from = to}));
        const std::vector<float> returned = back.Get();
        for (size_t i = 0; i < returned.size(); ++i) {
          if (std::isnan(values[i])) continue;
          const float want =
              to == Number::kBf16 ? cuda::FromBf16(expected[i]) : cuda::FromFp16(expected[i]);
          REQUIRE(cuda::BitsOf(returned[i]) == cuda::BitsOf(want));
        }
      }
    }
  }
}

TEST_CASE("GPU convert: beside the arithmetic, on each stream, with the host's bits",
          "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  const std::vector<float> values = Uniform(1, 20011);
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint16_t> expected;
  for (const float value : values) expected.push_back(cuda::ToBf16(value));
  for (const kernels::Stream stream :
       {kernels::Stream::kUpload, kernels::Stream::kCompute, kernels::Stream::kDownload}) {
    const DeviceVector<float> in(*gpu, values), back(*gpu, values);
    const DeviceVector<uint16_t> out(*gpu, std::vector<uint16_t>(values.size()), 1);
    const kernels::TensorView half = {out.data(), n, kernels::DataType::kBfloat16};
    REQUIRE_OK(gpu->Convert(stream, kernels::ViewOf(in.data(), n), half));
    REQUIRE_OK(gpu->Convert(stream, half, kernels::ViewOf(back.data(), n)));
    REQUIRE_OK(gpu->Synchronize());
    CHECK(SameBits(out.Get(), expected));
    const std::vector<float> returned = back.Get();
    for (size_t i = 0; i < returned.size(); ++i) {
      REQUIRE(returned[i] == cuda::FromBf16(expected[i]));
    }
  }
}

TEST_CASE("GPU look up: what bytes of images mean, with the host's bits", "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  for (const int64_t channels : {1, 3, 4}) {
    for (const int64_t n : {1, 20011, 65536}) {
      for (const int64_t skew : {0, 1}) {
        INFO(channels << " channels, n " << n << " skew " << skew);
        const std::vector<float> table = Uniform(1, 256 * channels);
        std::vector<uint8_t> bytes;
        std::vector<float> expected;
        std::vector<uint16_t> expected_half;
        for (int64_t i = 0; i < n; ++i) {
          bytes.push_back(static_cast<uint8_t>(PhiloxWord(2, static_cast<uint64_t>(i))));
          expected.push_back(table[static_cast<size_t>(i % channels * 256 + bytes.back())]);
          expected_half.push_back(cuda::ToBf16(expected.back()));
        }
        const DeviceVector<uint8_t> from(*gpu, bytes, skew);
        const DeviceVector<float> there(*gpu, table);
        const DeviceVector<float> to(*gpu, std::vector<float>(expected.size()), skew);
        const DeviceVector<uint16_t> half(*gpu, std::vector<uint16_t>(expected.size()), skew);
        REQUIRE_OK(gpu->LookUp(kernels::Stream::kCompute, from.data(), there.data(), channels,
                               kernels::ViewOf(to.data(), n)));
        REQUIRE_OK(gpu->LookUp(kernels::Stream::kCompute, from.data(), there.data(), channels,
                               {half.data(), n, kernels::DataType::kBfloat16}));
        REQUIRE_OK(gpu->Synchronize());
        REQUIRE(SameBits(to.Get(), expected));
        REQUIRE(SameBits(half.Get(), expected_half));
      }
    }
  }
  CHECK_STATUS(gpu->LookUp(kernels::Stream::kCompute, nullptr, nullptr, 0, {}),
               absl::StatusCode::kInvalidArgument, "channels");
}

template <cuda::UpdateRule kRule>
void CheckUpdate(CudaBackend& gpu, int64_t n, int64_t skew) {
  const cuda::UpdateScalars c = {.lr = 0.1f,
                                 .clip = 0.75f,
                                 .weight_decay = 0.01f,
                                 .keep = 0.999f,
                                 .momentum = 0.9f,
                                 .beta1 = 0.9f,
                                 .one_minus_beta1 = 0.1f,
                                 .beta2 = 0.999f,
                                 .one_minus_beta2 = 0.001f,
                                 .root_scale = 1.5f,
                                 .epsilon = 1e-8f};
  std::vector<float> w = Uniform(1, n);
  const std::vector<float> g = Uniform(2, n);
  std::vector<float> s0 = Uniform(3, n);
  std::vector<float> s1 = Uniform(4, n);
  for (float& v : s1) v = std::fabs(v);
  // This state is a mean of squares, too; host and card have different bits for NaN.
  if (kRule == cuda::UpdateRule::kAdadelta) {
    for (float& v : s0) v = std::fabs(v);
  }
  const DeviceVector<float> dw(gpu, w, skew), dg(gpu, g), d0(gpu, s0), d1(gpu, s1);
  const DeviceVector<uint16_t> half(gpu, std::vector<uint16_t>(w.size()));
  REQUIRE_OK(gpu.Update({.rule = kRule,
                         .scalars = c,
                         .n = n,
                         .weights = dw.data(),
                         .gradient = dg.data(),
                         .s0 = d0.data(),
                         .s1 = d1.data(),
                         .weights_bf16 = half.data()}));
  std::vector<uint16_t> expected_half(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    w[i] = cuda::Updated<kRule>(c, w[i], g[i], &s0[i], &s1[i]);
    expected_half[i] = cuda::ToBf16(w[i]);
  }
  INFO("rule " << static_cast<int>(kRule) << " n " << n << " skew " << skew);
  REQUIRE(SameBits(dw.Get(), w));
  REQUIRE(SameBits(d0.Get(), s0));
  REQUIRE(SameBits(d1.Get(), s1));
  REQUIRE(SameBits(half.Get(), expected_half));
}

TEST_CASE("GPU updates: every rule has the host's bits", "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  for (const int64_t n : Sizes()) {
    for (const int64_t skew : {0, 1}) {
      for (const cuda::UpdateRuleTraits& traits : cuda::kUpdateRules) {
        cuda::WithRule(traits.rule, [&](auto rule) {
          if constexpr (cuda::TraitsOf(rule()).on_device) CheckUpdate<rule()>(*gpu, n, skew);
        });
      }
    }
  }
}

TEST_CASE("GPU norm: the sum of squares, and how many values are not finite", "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  for (const int64_t n : Sizes()) {
    std::vector<float> values = Uniform(6, n);
    int64_t broken = 0;
    for (size_t i = 0; i < values.size(); i += 1000, ++broken) {
      values[i] = i % 2000 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                : -std::numeric_limits<float>::infinity();
    }
    // Millions of terms one by one would lose 1e-12 of a double, more than the GPU's chunks do.
    long double exact = 0.0;
    for (const float v : values) exact += std::isfinite(v) ? double{v} * double{v} : 0.0;
    const auto sum = static_cast<double>(exact);
    const DeviceVector<float> in(*gpu, values, 1);
    const DeviceVector<cuda::NormResult> out(*gpu, std::vector<cuda::NormResult>(1));
    REQUIRE_OK(gpu->Norm({.n = n, .values = in.data(), .result = out.data()}));
    const cuda::NormResult first = out.Get()[0];
    CHECK(first.not_finite == broken);
    CHECK(std::fabs(first.sum_of_squares - sum) <= 1e-12 * sum);
    REQUIRE_OK(gpu->Norm({.n = n, .values = in.data(), .result = out.data()}));
    CHECK(out.Get()[0].sum_of_squares == first.sum_of_squares);
  }
}

TEST_CASE("GPU int8 codes: codes, scales and residual have the host's bits", "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  for (const int64_t n : Sizes()) {
    std::vector<float> gradient = Uniform(8, n);
    for (size_t i = 0; i < gradient.size() && i < 256; ++i) gradient[i] *= 0x1p-140f;  // Tiny.
    std::vector<float> residual = Uniform(9, n);
    for (size_t i = 0; i < residual.size() && i < 256; ++i) residual[i] = 0.0f;
    const Int8Result expected = QuantizeOnHost(gradient, residual);
    const DeviceVector<float> dg(*gpu, gradient), dr(*gpu, residual);
    const DeviceVector<int8_t> codes(*gpu, std::vector<int8_t>(gradient.size()));
    const DeviceVector<float> scales(*gpu, std::vector<float>(expected.scales.size()));
    REQUIRE_OK(gpu->Quantize({.n = n,
                              .gradient = dg.data(),
                              .residual = dr.data(),
                              .codes = codes.data(),
                              .scales = scales.data()}));
    REQUIRE(SameBits(codes.Get(), expected.codes));
    REQUIRE(SameBits(scales.Get(), expected.scales));
    REQUIRE(SameBits(dr.Get(), expected.residual));
    REQUIRE_OK(gpu->Dequantize(
        {.n = n, .codes = codes.data(), .scales = scales.data(), .values = dg.data()}));
    const std::vector<float> values = dg.Get();
    for (size_t i = 0; i < values.size(); ++i) {
      REQUIRE(values[i] == cuda::FromInt8(expected.codes[i], expected.scales[i / 256]));
    }
  }
}

void CheckTopK(CudaBackend& gpu, const std::vector<float>& gradient, int64_t k) {
  const auto n = static_cast<int64_t>(gradient.size());
  const std::vector<float> residual(gradient.size(), 0.125f);
  const TopKResult expected = SelectTopKOnHost(gradient, residual, static_cast<size_t>(k));
  const DeviceVector<float> dg(gpu, gradient, 1), dr(gpu, residual);
  const DeviceVector<int32_t> indices(gpu, std::vector<int32_t>(static_cast<size_t>(k)));
  const DeviceVector<float> values(gpu, std::vector<float>(static_cast<size_t>(k)));
  REQUIRE_OK(gpu.SelectTopK({.n = n,
                             .k = k,
                             .gradient = dg.data(),
                             .residual = dr.data(),
                             .indices = indices.data(),
                             .values = values.data()}));
  INFO("n " << n << " k " << k);
  REQUIRE(SameBits(indices.Get(), expected.indices));
  REQUIRE(SameBits(values.Get(), expected.values));
  REQUIRE(SameBits(dr.Get(), expected.residual));
}

TEST_CASE("GPU top-k: the host's choice, also among equals", "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  for (const int64_t n : Sizes()) {
    std::vector<float> gradient = Uniform(10, n);
    for (const int64_t k : {int64_t{0}, n > 0 ? int64_t{1} : int64_t{0}, n / 100, n / 2, n}) {
      CheckTopK(*gpu, gradient, k);
    }
    for (size_t i = 0; i < gradient.size(); ++i) {  // Few different values: many ties.
      gradient[i] = static_cast<float>(PhiloxWord(11, i) % 5) - 2.0f;
    }
    CheckTopK(*gpu, gradient, n / 3);
  }
}

TEST_CASE("GPU operations: impossible arguments are named", "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  CHECK_STATUS(gpu->Cast({.n = -1}), kInvalid, "cast: n is -1");
  CHECK_STATUS(gpu->Cast({.n = 1}), kInvalid, "cast: in is null");
  const DeviceVector<float> one(*gpu, {1.0f});
  CHECK_STATUS(gpu->Update({.rule = cuda::UpdateRule::kAdam,
                            .n = 1,
                            .weights = one.data(),
                            .gradient = one.data(),
                            .s0 = one.data()}),
               kInvalid, "update: s1 is null");
  CHECK_STATUS(gpu->SelectTopK({.n = 1, .k = 2, .gradient = one.data(), .residual = one.data()}),
               kInvalid, "top-k: k is 2");
  CHECK_STATUS(gpu->TryAllocate(-1), kInvalid, "-1 bytes");
  CHECK_STATUS(gpu->TryAllocate(int64_t{1} << 50), absl::StatusCode::kResourceExhausted, "free");
  CHECK(gpu->Allocate(int64_t{1} << 50) == nullptr);
}

TEST_CASE("GPU ops: labels and row numbers out of range are named when it is waited for",
          "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  REQUIRE_OK_AND_ASSIGN(const auto softmax,
                        gpu->Prepare(kernels::MatrixDesc(K::kSoftmaxCrossEntropyForward, 3, 4, 1)));
  const DeviceVector<float> logits(*gpu, Uniform(1, 12)), out(*gpu, Uniform(1, 12)),
      loss(*gpu, Uniform(1, 3));
  const DeviceVector<int32_t> labels(*gpu, {1, 4, -1});
  REQUIRE_OK(gpu->Run(*softmax,
                      {kernels::ViewOf(logits.data(), 12), kernels::ViewOf(labels.data(), 3)},
                      {kernels::ViewOf(out.data(), 12), kernels::ViewOf(loss.data(), 3)}));
  CHECK_STATUS(gpu->Synchronize(), kInvalid, "label 1 is 4, expected 0 <= label < 4");
  REQUIRE_OK(gpu->Synchronize());  // Told once.

  kernels::OpDesc d = kernels::MatrixDesc(K::kEmbeddingForward, 2, 1, 3);
  d.rows = 7;
  REQUIRE_OK_AND_ASSIGN(const auto embedding, gpu->Prepare(d));
  const DeviceVector<float> rows(*gpu, {0.5f, 7.0f}), weight(*gpu, Uniform(1, 21)),
      y(*gpu, Uniform(1, 6));
  REQUIRE_OK(gpu->Run(*embedding,
                      {kernels::ViewOf(rows.data(), 2), kernels::ViewOf(weight.data(), 21)},
                      {kernels::ViewOf(y.data(), 6)}));
  CHECK_STATUS(gpu->Synchronize(), kInvalid, "row number 0 is 0.5");
}

TEST_CASE("GPU graphs: a recorded step does what the plain one does", "[gpu][own][library]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  kernels::OpDesc d = kernels::MatrixDesc(K::kFullyConnectedForward, 64, 128, 32);
  d.has_bias = true;
  d.fuse_relu = true;
  REQUIRE_OK_AND_ASSIGN(const auto plan, gpu->Prepare(d));
  const DeviceVector<float> x(*gpu, Uniform(1, 64 * 128)), w(*gpu, Uniform(2, 32 * 128)),
      bias(*gpu, Uniform(3, 32)), y(*gpu, std::vector<float>(64 * 32));
  kernels::GraphRecorder recorder(*gpu);
  const auto step = [&] {
    return gpu->Run(*plan,
                    {kernels::ViewOf(x.data(), 64 * 128), kernels::ViewOf(w.data(), 32 * 128),
                     kernels::ViewOf(bias.data(), 32)},
                    {kernels::ViewOf(y.data(), 64 * 32)});
  };
  REQUIRE_OK(recorder.Run(step));
  const std::vector<float> plain = y.Get();
  for (int i = 0; i < 3; ++i) {
    REQUIRE_OK(gpu->Zero(y.data(), 64 * 32 * 4));
    REQUIRE_OK(recorder.Run(step));
    CHECK(recorder.recorded());
    REQUIRE_OK(gpu->Synchronize());
    CHECK(SameBits(y.Get(), plain));
  }
}

TEST_CASE("GPU graphs: dropout draws by the key that lies on the card at each launch",
          "[gpu][own]") {
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  constexpr int64_t kCount = 8 * 251;
  kernels::OpDesc d = kernels::MatrixDesc(K::kDropoutForward, 8, 251, 1);
  d.dropout_rate = 0.3f;
  REQUIRE_OK_AND_ASSIGN(const auto plan, gpu->Prepare(d));
  const std::vector<float> values = Uniform(1, kCount);
  const DeviceVector<float> x(*gpu, values), y(*gpu, Uniform(2, kCount));
  const DeviceVector<int32_t> key(*gpu, std::vector<int32_t>(kKeyWords), 1);
  kernels::GraphRecorder recorder(*gpu);
  const cuda::DropoutRule rule = cuda::DropoutRuleOf(d.dropout_rate);
  for (uint64_t step = 0; step < 4; ++step) {
    const uint64_t step_key = MixKey(7, step);
    REQUIRE_OK(gpu->Copy(key.data(), WordsOfKey(step_key).data(), kKeyWords * 4));
    REQUIRE_OK(recorder.Run([&] {
      return gpu->Run(*plan,
                      {kernels::ViewOf(x.data(), kCount), kernels::ViewOf(key.data(), kKeyWords)},
                      {kernels::ViewOf(y.data(), kCount)});
    }));
    CHECK(recorder.recorded() == (step > 0));
    CHECK(recorder.reason().empty());
    CHECK(gpu->captures_refused() == 0);
    REQUIRE_OK(gpu->Synchronize());
    std::vector<float> expected;
    for (size_t i = 0; i < values.size(); ++i) {
      expected.push_back(cuda::Dropout(rule, PhiloxWord(step_key, i), values[i]));
    }
    CHECK(SameBits(y.Get(), expected));
  }
}

}  // namespace
}  // namespace capstan::gpu::own_conformance_test
