// LossScale: the factor of the loss, so that small gradients of fp16 tensors do not become zero,
// and large ones not infinite.
//
// A gradient that has an infinity or NaN is useless: the same batch is computed again with a
// smaller scale. So every batch gives its gradient once, as without scaling. (The source skips such
// a batch. Here other workers may wait for it under BSP, and a push of zeros would let momentum and
// weight decay move the parameters.)
//
//   initial ──overflow──► × backoff ──growth_interval good batches in a row──► × growth
//
// Scales are powers of two, so that dividing by them is exact. Source: Micikevicius et al.,
// Mixed Precision Training, ICLR 2018, section 3.2; rule and defaults as PyTorch's
// torch.amp.GradScaler.
//
// Pure. Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_TRAINING_TRAINER_LOSS_SCALE_H_
#define CAPSTAN_WORKER_TRAINING_TRAINER_LOSS_SCALE_H_

#include <cstdint>

namespace capstan::worker {

class LossScale {
 public:
  struct Options {
    // The scale with which a batch begins.
    enum class Start {
      kLast,  // The scale after the last batch.
      // `initial`, so that a gradient does not depend on what its worker has computed before (BSP,
      // where any worker may compute a slot).
      kInitial,
    };
    Start start = Start::kLast;
    float initial = 65536.0f;  // A power of two in [min, max].
    float growth = 2.0f;       // A power of two > 1; backoff: a power of two < 1.
    float backoff = 0.5f;
    int64_t growth_interval = 2000;  // >= 1.
    // If a gradient overflows with this scale, the model has diverged.
    float min = 1.0f;
    // A larger scale would make even the largest values of a loss's gradient, about 1, infinite.
    float max = 16777216.0f;
  };

  explicit LossScale(const Options& options) : options_(options), scale_(options.initial) {}

  // A batch begins.
  void Begin();
  // The scale for the batch's gradient.
  float scale() const { return scale_; }
  // The gradient had only finite values.
  void Good();
  // The gradient had other values. Returns true if the batch must be computed again, with scale().
  bool Overflowed();

 private:
  const Options options_;
  float scale_;
  int64_t good_ = 0;  // Good batches in a row since the scale was changed.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_TRAINER_LOSS_SCALE_H_
