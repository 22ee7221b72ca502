// LossScale: by what the loss is multiplied, so that small gradients of fp16 tensors do not become
// zero, and large ones not infinite.
//
// A gradient that has an infinity or NaN is of no use: the same batch is computed once more, with a
// smaller scale. So every batch gives its gradient once, as without scaling, where the source
// leaves such a batch out: here others may wait for it (BSP), and a push of zeros would let
// momentum and weight decay move the parameters.
//
//   initial ──overflow──► × backoff ──growth_interval good batches in a row──► × growth
//
// Scales are powers of two, so that dividing by them again is exact. Source: Micikevicius et al.,
// Mixed Precision Training, ICLR 2018, section 3.2; rule and defaults as PyTorch's
// torch.amp.GradScaler.
//
// Pure. Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_TRAINING_LOSS_SCALE_H_
#define CAPSTAN_WORKER_TRAINING_LOSS_SCALE_H_

#include <cstdint>

namespace capstan::worker {

class LossScale {
 public:
  struct Options {
    // What a batch begins with.
    enum class Start {
      kLast,  // The scale that the batches before have led to.
      // `initial`: a gradient does not depend on what its worker has computed before (BSP, where
      // any worker may compute a slot).
      kInitial,
    };
    Start start = Start::kLast;
    float initial = 65536.0f;  // A power of two in [min, max].
    float growth = 2.0f;       // Powers of two: > 1, < 1.
    float backoff = 0.5f;
    int64_t growth_interval = 2000;  // >= 1.
    // With less, what overflows is not the scale's fault: the model diverges.
    float min = 1.0f;
    // Where 1 is the largest part of a loss's gradient, a larger one makes it infinite.
    float max = 16777216.0f;
  };

  explicit LossScale(const Options& options) : options_(options), scale_(options.initial) {}

  // A batch begins.
  void Begin();
  // For its gradient.
  float scale() const { return scale_; }
  // That had only finite values.
  void Good();
  // That had others. Returns whether it is to be computed once more, with scale().
  bool Overflowed();

  int64_t overflows() const { return overflows_; }

 private:
  const Options options_;
  float scale_;
  int64_t good_ = 0;  // In a row, since the scale was changed.
  int64_t overflows_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_LOSS_SCALE_H_
