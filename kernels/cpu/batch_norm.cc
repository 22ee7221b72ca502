#include "kernels/cpu/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/parallel.h"
#include "kernels/host_memory.h"

namespace capstan::kernels {
namespace {

constexpr int64_t kPositionsOfChunk = 256;

class BatchNormPlan : public CpuPlan {
 public:
  BatchNormPlan(const OpSignature& signature, const CpuContext& context)
      : CpuPlan(signature, context),
        positions_(desc().n * desc().h * desc().w),
        chunks_((positions_ + kPositionsOfChunk - 1) / kPositionsOfChunk) {}

  absl::Status Init() {
    const int64_t floats = (chunks_ + 3) * desc().c;
    scratch_ = AllocateFloats(floats);
    if (scratch_ != nullptr) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(ToString(desc()), ": no memory for ", floats, " floats of scratch"));
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    switch (desc().kind) {
      case OpKind::kBatchNormForward:
        Statistics(in[0].f32(), out[1].f32(), out[2].f32());
        Normalise(in[0].f32(), in[1].f32(), in[2].f32(), out[1].f32(), out[2].f32(), out[0].f32());
        break;
      case OpKind::kBatchNormInference:
        Normalise(in[0].f32(), in[1].f32(), in[2].f32(), in[3].f32(), in[4].f32(), out[0].f32());
        break;
      default:
        Backward(in, out);
    }
    return absl::OkStatus();
  }

 private:
  // Per-channel coefficients of the last pass over memory.
  float* Coefficients(int64_t i) const { return scratch_.get() + (chunks_ + i) * desc().c; }

  // sums[c] = total over all positions of what add(first position, positions, sums) adds.
  template <typename Add>
  void Sum(float* sums, double factor, const Add& add) const {
    const int64_t channels = desc().c;
    float* partial = scratch_.get();
    ParallelForChunks(threads(), positions_, kPositionsOfChunk, [&](int64_t begin, int64_t end) {
      float* to = partial + begin / kPositionsOfChunk * channels;
      std::fill_n(to, channels, 0.0f);
      add(begin, end - begin, to);
    });
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0.0;
      for (int64_t i = 0; i < chunks_; ++i) sum += double{partial[i * channels + c]};
      sums[c] = static_cast<float>(sum * factor);
    }
  }

  void Statistics(const float* x, float* mean, float* variance) const {
    const int64_t channels = desc().c;
    const double factor = positions_ == 0 ? 0.0 : 1.0 / static_cast<double>(positions_);
    Sum(mean, factor, [&](int64_t first, int64_t count, float* sums) {
      simd().add_rows(count, channels, x + first * channels, sums);
    });
    Sum(variance, factor, [&](int64_t first, int64_t count, float* sums) {
      simd().add_squares(count, channels, x + first * channels, mean, sums);
    });
  }

  void Normalise(const float* x, const float* scale, const float* shift, const float* mean,
                 const float* variance, float* y) const {
    const int64_t channels = desc().c;
    float* a = Coefficients(0);
    float* b = Coefficients(1);
    for (int64_t c = 0; c < channels; ++c) {
      const double factor = double{scale[c]} * Inverse(variance[c]);
      a[c] = static_cast<float>(factor);
      b[c] = static_cast<float>(double{shift[c]} - double{mean[c]} * factor);
    }
    ParallelForChunks(threads(), positions_, kPositionsOfChunk, [&](int64_t begin, int64_t end) {
      simd().scale_shift(end - begin, channels, x + begin * channels, a, b, y + begin * channels);
    });
  }

  // dx = scale * inverse * (dy - mean(dy) - normal * mean(dy * normal)), written as p dy + q x + r.
  void Backward(Views in, Views out) const {
    const float* x = in[0].f32();
    const float* dy = in[1].f32();
    const float* scale = in[2].f32();
    const float* mean = in[3].f32();
    const float* variance = in[4].f32();
    float* dscale = out[1].f32();
    float* dshift = out[2].f32();
    const int64_t channels = desc().c;
    Sum(dshift, 1.0, [&](int64_t first, int64_t count, float* sums) {
      simd().add_rows(count, channels, dy + first * channels, sums);
    });
    Sum(dscale, 1.0, [&](int64_t first, int64_t count, float* sums) {
      simd().add_products(count, channels, x + first * channels, dy + first * channels, mean, sums);
    });
    float* p = Coefficients(0);
    float* q = Coefficients(1);
    float* r = Coefficients(2);
    const double count = positions_ == 0 ? 1.0 : static_cast<double>(positions_);
    for (int64_t c = 0; c < channels; ++c) {
      const double inverse = Inverse(variance[c]);
      const double sum_normal = double{dscale[c]} * inverse;
      const double factor = double{scale[c]} * inverse;
      const double slope = -factor * inverse * sum_normal / count;
      dscale[c] = static_cast<float>(sum_normal);
      p[c] = static_cast<float>(factor);
      q[c] = static_cast<float>(slope);
      r[c] = static_cast<float>(-factor * double{dshift[c]} / count - slope * double{mean[c]});
    }
    float* dx = out[0].f32();
    ParallelForChunks(threads(), positions_, kPositionsOfChunk, [&](int64_t begin, int64_t end) {
      const int64_t i = begin * channels;
      simd().combine(end - begin, channels, dy + i, x + i, p, q, r, dx + i);
    });
  }

  double Inverse(float variance) const {
    return 1.0 / std::sqrt(double{variance} + double{desc().epsilon});
  }

  const int64_t positions_;
  const int64_t chunks_;
  HostFloats scratch_;  // Partial sums [chunks, c], then coefficients [3, c].
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuPlan>> MakeBatchNormPlan(const OpSignature& signature,
                                                           const CpuContext& context) {
  auto plan = std::make_unique<BatchNormPlan>(signature, context);
  if (absl::Status status = plan->Init(); !status.ok()) return status;
  return std::unique_ptr<CpuPlan>(std::move(plan));
}

}  // namespace capstan::kernels
