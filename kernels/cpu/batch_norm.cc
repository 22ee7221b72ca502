// Batch normalisation for the CPU backend. It sums fixed chunks of positions in fp32 and adds the
// chunks in double, so the sums are accurate for any batch and do not depend on the thread count.
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

constexpr int64_t kPositionsOfChunk = 256;

class BatchNormPlan : public CpuPlan {
 public:
  BatchNormPlan(const OpSignature& signature, const CpuContext& context)
      : CpuPlan(signature, context),
        positions_(desc().n * desc().h * desc().w),
        chunks_((positions_ + kPositionsOfChunk - 1) / kPositionsOfChunk),
        sums_(SumsOf(desc().kind)) {}

  absl::Status Init() {
    const int64_t floats = (sums_ * chunks_ + kCoefficients) * desc().c;
    scratch_ = AllocateFloats(floats);
    if (scratch_ != nullptr) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(ToString(desc()), ": no memory for ", floats, " floats of scratch"));
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    switch (desc().kind) {
      case OpKind::kBatchNormForward:
        Statistics(in[0].f32(), out[1].f32(), out[2].f32());
        FindScaleShift(in[1].f32(), in[2].f32(), out[1].f32(), out[2].f32());
        Normalise(in[0].f32(), FloatsOf(in, 3), out[0].f32());
        break;
      case OpKind::kBatchNormInference:
        FindScaleShift(in[1].f32(), in[2].f32(), in[3].f32(), in[4].f32());
        Normalise(in[0].f32(), FloatsOf(in, 5), out[0].f32());
        break;
      default:
        Backward(in, out);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kCoefficients = 5;

  // The number of partial sums that a channel needs at once.
  static int64_t SumsOf(OpKind kind) {
    if (kind == OpKind::kBatchNormInference) return 0;
    return kind == OpKind::kBatchNormForward ? 1 : 2;
  }

  // The partial sums number `which` of all channels, for the chunk that begins at `begin`.
  float* Partial(int64_t which, int64_t begin) const {
    return scratch_.get() + (which * chunks_ + begin / kPositionsOfChunk) * desc().c;
  }
  // The coefficients of each channel. Forward: y = a x + b, before an addend and ReLU. Backward:
  // dx = p dz + q x + r, where dz is NormGradient's.
  float* a() const { return Coefficients(0); }
  float* b() const { return Coefficients(1); }
  float* p() const { return Coefficients(2); }
  float* q() const { return Coefficients(3); }
  float* r() const { return Coefficients(4); }
  float* Coefficients(int64_t i) const { return scratch_.get() + (sums_ * chunks_ + i) * desc().c; }

  // Calls body(first position, positions, index of the first element) for each chunk.
  template <typename Body>
  void ForEachChunk(const Body& body) const {
    ParallelForChunks(threads(), positions_, kPositionsOfChunk, [&](int64_t begin, int64_t end) {
      body(begin, end - begin, begin * desc().c);
    });
  }

  // Sets the partial sums of a chunk to 0 and returns them.
  float* ZeroPartial(int64_t which, int64_t begin) const {
    float* sums = Partial(which, begin);
    std::fill_n(sums, desc().c, 0.0f);
    return sums;
  }

  // sums[c] = factor * total of the chunks' partial sums.
  void AddPartials(int64_t which, double factor, float* sums) const {
    const int64_t channels = desc().c;
    const float* partial = Partial(which, 0);
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0.0;
      for (int64_t i = 0; i < chunks_; ++i) sum += double{partial[i * channels + c]};
      sums[c] = static_cast<float>(sum * factor);
    }
  }

  void Statistics(const float* x, float* mean, float* variance) const {
    const int64_t channels = desc().c;
    const double factor = positions_ == 0 ? 0.0 : 1.0 / static_cast<double>(positions_);
    ForEachChunk([&](int64_t begin, int64_t count, int64_t i) {
      simd().add_rows(count, channels, x + i, ZeroPartial(0, begin));
    });
    AddPartials(0, factor, mean);
    ForEachChunk([&](int64_t begin, int64_t count, int64_t i) {
      simd().add_squares(count, channels, x + i, mean, ZeroPartial(0, begin));
    });
    AddPartials(0, factor, variance);
  }

  void FindScaleShift(const float* scale, const float* shift, const float* mean,
                      const float* variance) const {
    for (int64_t c = 0; c < desc().c; ++c) {
      const double factor = double{scale[c]} * Inverse(variance[c]);
      a()[c] = static_cast<float>(factor);
      b()[c] = static_cast<float>(double{shift[c]} - double{mean[c]} * factor);
    }
  }

  // REQUIRES: FindScaleShift. `addend` may be null.
  void Normalise(const float* x, const float* addend, float* y) const {
    ForEachChunk([&](int64_t, int64_t count, int64_t i) {
      if (desc().fuse_relu) {
        simd().scale_shift_relu(count, desc().c, x + i, a(), b(),
                                addend == nullptr ? nullptr : addend + i, y + i);
      } else {
        simd().scale_shift(count, desc().c, x + i, a(), b(), y + i);
      }
    });
  }

  // The operands from which dsum, the gradient of ReLU's argument, is computed.
  struct SumOfAddend {
    const float* y = nullptr;
    const float* dy2 = nullptr;  // Null: dy is the whole gradient of y.
    float* dsum = nullptr;       // Null: there is no addend.
  };

  // If there is an addend, SumGradients stores dz in dsum for the second pass over memory. With
  // ReLU alone, both passes compute dz again from x.
  void Backward(Views in, Views out) const {
    NormGradient gradient = {.x = in[0].f32(), .dy = in[1].f32()};
    const float* mean = in[3].f32();
    const float* variance = in[4].f32();
    SumOfAddend sum;
    if (desc().has_addend) {
      sum = {in[5].f32(), FloatsOf(in, 6), out[3].f32()};
    } else if (desc().fuse_relu) {
      FindScaleShift(in[2].f32(), in[5].f32(), mean, variance);
      gradient.a = a();
      gradient.b = b();
    }
    SumGradients(gradient, mean, sum, out[1].f32(), out[2].f32());
    if (sum.dsum != nullptr) gradient.dy = sum.dsum;
    FindSlopes(in[2].f32(), mean, variance, out[1].f32(), out[2].f32());
    float* dx = out[0].f32();
    ForEachChunk([&](int64_t, int64_t count, int64_t i) {
      simd().combine(count, desc().c, At(gradient, i), p(), q(), r(), dx + i);
    });
  }

  static NormGradient At(NormGradient gradient, int64_t i) {
    gradient.x += i;
    gradient.dy += i;
    return gradient;
  }

  // products[c] = sum of dz * (x - mean[c]), sums[c] = sum of dz. Writes dz to sum.dsum first,
  // unless that is null.
  void SumGradients(const NormGradient& gradient, const float* mean, const SumOfAddend& sum,
                    float* products, float* sums) const {
    const int64_t channels = desc().c;
    ForEachChunk([&](int64_t begin, int64_t count, int64_t i) {
      NormGradient here = At(gradient, i);
      if (sum.dsum != nullptr) {
        float* const dsum = sum.dsum + i;
        if (sum.dy2 != nullptr) {
          simd().add(count * channels, here.dy, sum.dy2 + i, dsum);
          here.dy = dsum;
        }
        simd().relu_backward(count * channels, sum.y + i, here.dy, dsum);
        here.dy = dsum;
      }
      simd().add_gradients(count, channels, here, mean, ZeroPartial(0, begin),
                           ZeroPartial(1, begin));
    });
    AddPartials(0, 1.0, sums);
    AddPartials(1, 1.0, products);
  }

  // dx = scale * inverse * (dz - mean(dz) - normal * mean(dz * normal)), written as p dz + q x + r.
  // On entry dscale is the sum of dz * (x - mean), on return the sum of dz * normal.
  void FindSlopes(const float* scale, const float* mean, const float* variance, float* dscale,
                  const float* dshift) const {
    const double count = positions_ == 0 ? 1.0 : static_cast<double>(positions_);
    for (int64_t c = 0; c < desc().c; ++c) {
      const double inverse = Inverse(variance[c]);
      const double sum_normal = double{dscale[c]} * inverse;
      const double factor = double{scale[c]} * inverse;
      const double slope = -factor * inverse * sum_normal / count;
      dscale[c] = static_cast<float>(sum_normal);
      p()[c] = static_cast<float>(factor);
      q()[c] = static_cast<float>(slope);
      r()[c] = static_cast<float>(-factor * double{dshift[c]} / count - slope * double{mean[c]});
    }
  }

  double Inverse(float variance) const {
    return 1.0 / std::sqrt(double{variance} + double{desc().epsilon});
  }

  const int64_t positions_;
  const int64_t chunks_;
  const int64_t sums_;
  HostFloats scratch_;  // Partial sums [sums, chunks, c], then coefficients [kCoefficients, c].
};

constexpr CpuOp kOps[] = {
    {OpKind::kBatchNormForward, MakeCpuPlan<BatchNormPlan>},
    {OpKind::kBatchNormInference, MakeCpuPlan<BatchNormPlan>},
    {OpKind::kBatchNormBackward, MakeCpuPlan<BatchNormPlan>},
};

}  // namespace

absl::Span<const CpuOp> BatchNormOps() { return kOps; }

}  // namespace capstan::kernels
