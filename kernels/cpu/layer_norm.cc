// Layer normalisation and RMS normalisation for the CPU backend: each position's channels by
// themselves, in fp32. The gradients of scale and shift are sums over fixed chunks of positions,
// which are added in double, so that they do not depend on the thread count.
//
// Thread safety: as Plan.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_plan.h"
#include "kernels/cpu/parallel.h"
#include "kernels/host_memory.h"

namespace capstan::kernels {
namespace {

constexpr int64_t kPositionsOfChunk = 64;

// The sum of term(0) to term(count - 1) in an order that depends on the count alone.
template <typename Term>
float SumOf(int64_t count, const Term& term) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += term(i);
  return sum;
}

// kCenters: layer normalisation. Otherwise RMS normalisation: the same with a mean of 0, and
// without a shift.
template <bool kCenters>
class PositionNormPlan : public CpuPlan {
 public:
  PositionNormPlan(const OpSignature& signature, const CpuContext& context)
      : CpuPlan(signature, context),
        positions_(desc().n * desc().h * desc().w),
        chunks_((positions_ + kPositionsOfChunk - 1) / kPositionsOfChunk) {}

  absl::Status Init() {
    if (IsForward()) return absl::OkStatus();
    const int64_t floats = 2 * chunks_ * desc().c;
    partials_ = AllocateFloats(floats);
    if (partials_ != nullptr) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(ToString(desc()), ": no memory for ", floats, " floats of scratch"));
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    if (IsForward()) {
      Forward(in, out);
    } else {
      Backward(in, out);
    }
    return absl::OkStatus();
  }

 private:
  bool IsForward() const {
    return desc().kind == (kCenters ? OpKind::kLayerNormForward : OpKind::kRmsNormForward);
  }

  float Inverse(float variance) const { return 1.0f / std::sqrt(variance + desc().epsilon); }

  void Forward(Views in, Views out) const {
    const int64_t channels = desc().c;
    const auto count = static_cast<float>(channels);
    const float* const scale = in[1].f32();
    const float* const shift = FloatsOf(in, 2);
    ParallelForChunks(threads(), positions_, kPositionsOfChunk, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* const x = in[0].f32() + row * channels;
        float* const y = out[0].f32() + row * channels;
        const float mean =
            kCenters ? SumOf(channels, [x](int64_t c) { return x[c]; }) / count : 0.0f;
        const float variance =
            SumOf(channels, [x, mean](int64_t c) { return (x[c] - mean) * (x[c] - mean); }) / count;
        if (kCenters) out[1].f32()[row] = mean;
        out.back().f32()[row] = variance;
        const float inverse = Inverse(variance);
        for (int64_t c = 0; c < channels; ++c) {
          const float scaled = (x[c] - mean) * inverse * scale[c];
          y[c] = kCenters ? scaled + shift[c] : scaled;
        }
      }
    });
  }

  // The partial sums of a chunk of positions: of dy * normal, then of dy.
  float* Partial(int64_t chunk) const { return partials_.get() + 2 * chunk * desc().c; }

  void Backward(Views in, Views out) const {
    const int64_t channels = desc().c;
    ParallelForChunks(threads(), positions_, kPositionsOfChunk, [&](int64_t begin, int64_t end) {
      float* const sums = Partial(begin / kPositionsOfChunk);
      std::fill_n(sums, 2 * channels, 0.0f);
      for (int64_t row = begin; row < end; ++row) BackwardRow(in, row, out[0].f32(), sums);
    });
    AddPartials(0, out[1].f32());
    if (kCenters) AddPartials(channels, out[2].f32());
  }

  // dx = inverse * (g - mean(g) - normal * mean(g * normal)), with g = dy * scale; without mean(g)
  // for RMS normalisation.
  void BackwardRow(Views in, int64_t row, float* all_dx, float* sums) const {
    const int64_t channels = desc().c;
    const auto count = static_cast<float>(channels);
    const float* const x = in[0].f32() + row * channels;
    const float* const dy = in[1].f32() + row * channels;
    const float* const scale = in[2].f32();
    float* const dx = all_dx + row * channels;
    const float mean = kCenters ? in[3].f32()[row] : 0.0f;
    const float inverse = Inverse(in.back().f32()[row]);
    const auto normal = [=](int64_t c) { return (x[c] - mean) * inverse; };
    const float sum =
        kCenters ? SumOf(channels, [=](int64_t c) { return dy[c] * scale[c]; }) / count : 0.0f;
    const float product =
        SumOf(channels, [=](int64_t c) { return dy[c] * scale[c] * normal(c); }) / count;
    for (int64_t c = 0; c < channels; ++c) {
      sums[c] += dy[c] * normal(c);
      sums[channels + c] += dy[c];
    }
    for (int64_t c = 0; c < channels; ++c) {
      dx[c] = inverse * (dy[c] * scale[c] - sum - normal(c) * product);
    }
  }

  // sums[c] = total of the chunks' partial sums, which lie `offset` behind their chunk's begin.
  void AddPartials(int64_t offset, float* sums) const {
    for (int64_t c = 0; c < desc().c; ++c) {
      double sum = 0.0;
      for (int64_t i = 0; i < chunks_; ++i) sum += double{Partial(i)[offset + c]};
      sums[c] = static_cast<float>(sum);
    }
  }

  const int64_t positions_;
  const int64_t chunks_;
  HostFloats partials_;  // Backward: [chunks, 2, c].
};

constexpr CpuOp kOps[] = {
    {OpKind::kLayerNormForward, MakeCpuPlan<PositionNormPlan<true>>},
    {OpKind::kLayerNormBackward, MakeCpuPlan<PositionNormPlan<true>>},
    {OpKind::kRmsNormForward, MakeCpuPlan<PositionNormPlan<false>>},
    {OpKind::kRmsNormBackward, MakeCpuPlan<PositionNormPlan<false>>},
};

}  // namespace

absl::Span<const CpuOp> LayerNormOps() { return kOps; }

}  // namespace capstan::kernels
