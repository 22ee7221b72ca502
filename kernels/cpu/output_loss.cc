// Losses whose labels are numbers, for the CPU backend: squared, Huber, quantile and sigmoid
// cross-entropy.
//
// Thread safety: as Plan.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_plan.h"
#include "kernels/cpu/parallel.h"

namespace capstan::kernels {
namespace {

constexpr int64_t kElementsOfItem = 1 << 14;  // A thread takes this many elements at a time.

struct Squared {
  float Loss(float y, float t, float) const { return (y - t) * (y - t); }
  float Slope(float y, float t, float) const { return 2.0f * (y - t); }
};

struct Huber {
  float delta;
  float Loss(float y, float t, float) const {
    const float error = std::fabs(y - t);
    return error <= delta ? 0.5f * error * error : delta * (error - 0.5f * delta);
  }
  float Slope(float y, float t, float) const { return std::clamp(y - t, -delta, delta); }
};

struct Quantile {
  float q;
  float Loss(float y, float t, float) const { return y < t ? q * (t - y) : (1.0f - q) * (y - t); }
  float Slope(float y, float t, float) const {
    if (y == t) return 0.0f;
    return y < t ? -q : 1.0f - q;
  }
};

struct SigmoidCrossEntropy {
  // exp is at most 1 in both, so nothing overflows.
  float Loss(float y, float t, float weight) const {
    const float rest = std::log1p(std::exp(-std::fabs(y)));
    return weight * t * (std::max(-y, 0.0f) + rest) + (1.0f - t) * (std::max(y, 0.0f) + rest);
  }
  float Slope(float y, float t, float weight) const {
    const float small = std::exp(-std::fabs(y));
    const float minor = small / (1.0f + small), major = 1.0f / (1.0f + small);
    const float probability = y < 0.0f ? minor : major, other = y < 0.0f ? major : minor;
    return (1.0f - t) * probability - weight * t * other;
  }
};

class OutputLossPlan : public CpuPlan {
 public:
  using CpuPlan::CpuPlan;

  absl::Status Execute(Views in, Views out, const RunOptions& options) override {
    switch (desc().loss) {
      case OutputLoss::kSquared:
        Run(Squared(), in, out, options);
        break;
      case OutputLoss::kHuber:
        Run(Huber{desc().loss_parameter}, in, out, options);
        break;
      case OutputLoss::kQuantile:
        Run(Quantile{desc().loss_parameter}, in, out, options);
        break;
      case OutputLoss::kSigmoid:
        Run(SigmoidCrossEntropy(), in, out, options);
        break;
    }
    return absl::OkStatus();
  }

 private:
  template <typename Rule>
  void Run(const Rule& rule, Views in, Views out, const RunOptions& options) const {
    const int64_t outputs = desc().c;
    const bool forward = desc().kind == OpKind::kOutputLossForward;
    const float* weights = FloatsOf(in, 2);
    const float factor = options.scale / static_cast<float>(outputs);
    const int64_t samples = std::max<int64_t>(1, kElementsOfItem / outputs);
    ParallelForChunks(threads(), desc().n, samples, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float* y = in[0].f32() + n * outputs;
        const float* t = in[1].f32() + n * outputs;
        double sum = 0.0;
        for (int64_t c = 0; c < outputs; ++c) {
          const float weight = weights == nullptr ? 1.0f : weights[c];
          if (forward) {
            sum += double{rule.Loss(y[c], t[c], weight)};
          } else {
            out[0].f32()[n * outputs + c] = factor * rule.Slope(y[c], t[c], weight);
          }
        }
        if (forward) out[0].f32()[n] = static_cast<float>(sum / static_cast<double>(outputs));
      }
    });
  }
};

constexpr CpuOp kOps[] = {
    {OpKind::kOutputLossForward, MakeCpuPlan<OutputLossPlan>},
    {OpKind::kOutputLossBackward, MakeCpuPlan<OutputLossPlan>},
};

}  // namespace

absl::Span<const CpuOp> OutputLossOps() { return kOps; }

}  // namespace capstan::kernels
