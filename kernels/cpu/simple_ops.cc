// Ops of the CPU backend that are single passes over memory: element-wise ops, pools, softmax
// cross-entropy and embeddings. All but softmax and embedding's forward op use the loops of Simd.
//
// Thread safety: as Plan.
#include <algorithm>
#include <cmath>

#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "kernels/activation.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_plan.h"
#include "kernels/cpu/parallel.h"

namespace capstan::kernels {
namespace {

// A thread takes this many elements at a time: 64 KiB of each operand.
constexpr int64_t kElementsOfItem = 1 << 14;

void Activate(Activation activation, int64_t count, const float* x, float* y) {
  WithActivation(activation, [&](auto one) {
    for (int64_t i = 0; i < count; ++i) y[i] = Activated<decltype(one)::value>(x[i]);
  });
}

void ActivateBackward(Activation activation, int64_t count, const float* x, const float* dy,
                      float* dx) {
  WithActivation(activation, [&](auto one) {
    for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * ActivationSlope<decltype(one)::value>(x[i]);
  });
}

class ElementwisePlan : public CpuPlan {
 public:
  using CpuPlan::CpuPlan;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const float* a = in[0].f32();
    const float* b = FloatsOf(in, 1);
    float* y = out[0].f32();
    const auto rate = double{desc().dropout_rate};
    const auto threshold = static_cast<uint64_t>(std::ceil(rate * 0x1p32));
    const auto factor = static_cast<float>(1.0 / (1.0 - rate));
    const int32_t* key = in.size() > 1 ? in[1].i32() : nullptr;  // Only dropout has one.
    ParallelForChunks(threads(), out[0].count, kElementsOfItem, [&](int64_t i, int64_t end) {
      switch (desc().kind) {
        case OpKind::kReluForward:
          return simd().relu(end - i, a + i, y + i);
        case OpKind::kReluBackward:
          return simd().relu_backward(end - i, a + i, b + i, y + i);
        case OpKind::kAdd:
          return simd().add(end - i, a + i, b + i, y + i);
        case OpKind::kActivationForward:
          return Activate(desc().activation, end - i, a + i, y + i);
        case OpKind::kActivationBackward:
          return ActivateBackward(desc().activation, end - i, a + i, b + i, y + i);
        default:
          return simd().dropout(i, end - i, KeyOfWords(key[0], key[1]), threshold, factor, a + i,
                                y + i);
      }
    });
    return absl::OkStatus();
  }
};

class PoolPlan : public CpuPlan {
 public:
  using CpuPlan::CpuPlan;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    const PoolShape s = {d.h, d.w, d.c, d.out_h, d.out_w, d.kernel, d.stride, d.padding};
    const int64_t x_image = d.h * d.w * d.c;
    const int64_t y_image = d.out_h * d.out_w * d.c;
    const float* from = in[0].f32();
    float* to = out[0].f32();
    ParallelFor(threads(), d.n, [&](int64_t n, int) {
      const int64_t x = n * x_image;
      const int64_t y = n * y_image;
      switch (d.kind) {
        case OpKind::kMaxPoolForward:
          return simd().max_pool_forward(s, from + x, to + y, out[1].i32() + y);
        case OpKind::kMaxPoolBackward:
          return simd().max_pool_backward(s, from + y, in[1].i32() + y, to + x);
        case OpKind::kAveragePoolForward:
          return simd().average_pool_forward(s, from + x, to + y);
        default:
          return simd().average_pool_backward(s, from + y, to + x);
      }
    });
    return absl::OkStatus();
  }
};

class SoftmaxPlan : public CpuPlan {
 public:
  using CpuPlan::CpuPlan;

  absl::Status Execute(Views in, Views out, const RunOptions& options) override {
    const OpDesc& d = desc();
    const int32_t* labels = in[1].i32();
    if (const absl::Status status = CheckLabels({labels, static_cast<size_t>(d.n)}, d.c);
        !status.ok()) {
      return Annotate(status, ToString(d));
    }
    const float* from = in[0].f32();
    float* to = out[0].f32();
    float* loss = FloatsOf(out, 1);
    const float* weights = FloatsOf(in, 2);
    const int64_t samples = std::max<int64_t>(1, kElementsOfItem / d.c);
    ParallelForChunks(threads(), d.n, samples, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float weight = weights == nullptr ? 1.0f : weights[labels[n]];
        if (d.kind == OpKind::kSoftmaxCrossEntropyForward) {
          loss[n] = weight * Forward(from + n * d.c, labels[n], to + n * d.c);
        } else {
          Backward(from + n * d.c, labels[n], weight * options.scale, to + n * d.c);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Computes the probabilities of one sample and returns its loss. exp is at most 1, so nothing
  // overflows.
  float Forward(const float* logits, int32_t label, float* probabilities) const {
    const int64_t classes = desc().c;
    const float largest = *std::max_element(logits, logits + classes);
    double sum = 0.0;
    for (int64_t c = 0; c < classes; ++c) {
      probabilities[c] = std::exp(logits[c] - largest);
      sum += double{probabilities[c]};
    }
    const auto factor = static_cast<float>(1.0 / sum);
    for (int64_t c = 0; c < classes; ++c) probabilities[c] *= factor;
    return static_cast<float>(std::log(sum) + double{largest} - double{logits[label]});
  }

  void Backward(const float* probabilities, int32_t label, float scale, float* dlogits) const {
    const int64_t classes = desc().c;
    for (int64_t c = 0; c < classes; ++c) {
      dlogits[c] = (probabilities[c] - (c == label ? 1.0f : 0.0f)) * scale;
    }
  }
};

class EmbeddingPlan : public CpuPlan {
 public:
  using CpuPlan::CpuPlan;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    const float* rows = in[0].f32();
    if (const absl::Status status = CheckRows({rows, static_cast<size_t>(in[0].count)}, d.rows);
        !status.ok()) {
      return Annotate(status, ToString(d));
    }
    const float* from = in[1].f32();
    float* to = out[0].f32();
    const int64_t dim = d.out_c;
    if (d.kind == OpKind::kEmbeddingForward) {
      for (int64_t i = 0; i < in[0].count; ++i) {
        std::copy_n(from + static_cast<int64_t>(rows[i]) * dim, dim, to + i * dim);
      }
      return absl::OkStatus();
    }
    std::fill_n(to, out[0].count, 0.0f);
    for (int64_t i = 0; i < in[0].count; ++i) {
      float* sum = to + static_cast<int64_t>(rows[i]) * dim;
      simd().add(dim, sum, from + i * dim, sum);
    }
    return absl::OkStatus();
  }
};

constexpr CpuOp kOps[] = {
    {OpKind::kReluForward, MakeCpuPlan<ElementwisePlan>},
    {OpKind::kReluBackward, MakeCpuPlan<ElementwisePlan>},
    {OpKind::kActivationForward, MakeCpuPlan<ElementwisePlan>},
    {OpKind::kActivationBackward, MakeCpuPlan<ElementwisePlan>},
    {OpKind::kAdd, MakeCpuPlan<ElementwisePlan>},
    {OpKind::kDropoutForward, MakeCpuPlan<ElementwisePlan>},
    {OpKind::kDropoutBackward, MakeCpuPlan<ElementwisePlan>},
    {OpKind::kMaxPoolForward, MakeCpuPlan<PoolPlan>},
    {OpKind::kMaxPoolBackward, MakeCpuPlan<PoolPlan>},
    {OpKind::kAveragePoolForward, MakeCpuPlan<PoolPlan>},
    {OpKind::kAveragePoolBackward, MakeCpuPlan<PoolPlan>},
    {OpKind::kSoftmaxCrossEntropyForward, MakeCpuPlan<SoftmaxPlan>},
    {OpKind::kSoftmaxCrossEntropyBackward, MakeCpuPlan<SoftmaxPlan>},
    {OpKind::kEmbeddingForward, MakeCpuPlan<EmbeddingPlan>},
    {OpKind::kEmbeddingBackward, MakeCpuPlan<EmbeddingPlan>},
};

}  // namespace

absl::Span<const CpuOp> SimpleOps() { return kOps; }

}  // namespace capstan::kernels
