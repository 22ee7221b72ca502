// GradientStep: computes what one micro-batch contributes to an update: the gradient and statistics
// that are pushed.
//
// It is the only place where scales, keys, clipping and the check for divergence are applied;
// worker tasks and the reference trainer use it. With n samples in the micro-batch and N =
// gradient_samples in the whole update (the slots of an iteration that it is made of; N = n in SSP
// and ASP) the share of the micro-batch is n / N, and
//   gradient    sum over its samples of d(loss)/d(parameter), divided by N, so that a server only
//               adds; with clip_norm, scaled down so that its L2 norm is at most clip_norm * share,
//               which clips the micro-batch's own mean gradient to clip_norm whatever the number of
//               slots is
//   statistics  the micro-batch's means and variances times its share: the sum over the update's
//               slots is their mean
//   dropout     draws from MixKey(MixKey(MixKey(seed, 3), epoch), first position)
// If tensors are fp16 the loss is scaled (loss_scale.h): no part leaves before the whole gradient
// is known to be finite, and a batch that overflows is computed again with a smaller scale.
// An empty micro-batch (a slot beyond the end of the data) contributes zeros.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_TRAINER_GRADIENT_STEP_H_
#define CAPSTAN_WORKER_TRAINING_TRAINER_GRADIENT_STEP_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_plan.h"
#include "common/types/ids.h"
#include "worker/training/network.h"
#include "worker/training/trainer/loss_scale.h"

namespace capstan::worker {

struct MicroBatch {
  Epoch epoch;
  Range positions;               // Positions in the epoch's order. Empty: beyond the data.
  int64_t gradient_samples = 1;  // Samples of the whole update, >= max(1, positions.size()).
};

class GradientStep {
 public:
  struct Options {
    uint64_t seed = 1;                             // The job's seed.
    double clip_norm = 0;                          // 0: off.
    std::optional<LossScale::Options> loss_scale;  // Only for a device's network.
  };

  // True if Backward gives the network's gradient as it is: neither clipped nor unscaled.
  static bool LeavesAsComputed(const Options& options) {
    return options.clip_norm <= 0 && !options.loss_scale.has_value();
  }

  // Both are borrowed. REQUIRES: `network` was made of `plan`.
  GradientStep(const ModelPlan& plan, Network& network, const Options& options);

  // Computes the first part of the contribution of `batch`, the decoded samples at
  // `micro_batch.positions`; both stay until Backward has ended.
  //   parameters  [plan.parameter_count]  see Network::Forward
  //   needed      see Network::Forward
  // Errors: kInvalidArgument  batch and positions differ in size, or gradient_samples is out of
  //                           range.
  //         else              those of Network::Forward.
  absl::Status Forward(const MicroBatch& micro_batch, const BatchView& batch,
                       ParameterView parameters, const ParametersNeeded& needed = nullptr);

  // Computes the rest. REQUIRES: the last call was a Forward that has ended well.
  //   gradient    [plan.parameter_count]  overwritten; see Network::Backward. REQUIRES: fp32 if
  //                                       there is clip_norm or loss_scale
  //   statistics  [plan.statistic_count]  overwritten
  //   ready       see Network::Backward; called for parts that are final here, too: not if there is
  //               clip_norm or loss_scale, which need the whole gradient, and not after a part with
  //               a value that is not finite
  //   enqueued    see Network::Backward
  // Errors: kOutOfRange       diverged: the gradient, a statistic or the loss has a value that is
  //                           not finite; the message names the first layer and tensor with one.
  //                           No other error has this code.
  //         else              those of Network::Backward.
  absl::StatusOr<BatchResult> Backward(GradientView gradient, absl::Span<float> statistics,
                                       const GradientReady& ready = nullptr,
                                       const std::function<void()>& enqueued = nullptr);

 private:
  // Returns the gradient's sum of squares, which may not be finite. If parts of the gradient leave
  // by `ready` only its finiteness matters: then returns 0, or NaN if it is not finite.
  absl::StatusOr<double> Compute(float scale, GradientView gradient, absl::Span<float> statistics,
                                 const GradientReady& ready, const std::function<void()>& enqueued,
                                 BatchResult* result);
  float loss_scale() const { return loss_scale_.has_value() ? loss_scale_->scale() : 1.0f; }
  absl::Status CheckFinite(bool gradient_is, GradientView gradient,
                           absl::Span<const float> statistics, const BatchResult& result) const;

  const ModelPlan& plan_;
  Network& network_;
  const Options options_;
  std::optional<LossScale> loss_scale_;
  MicroBatch micro_batch_;  // The micro-batch of the last Forward.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_TRAINER_GRADIENT_STEP_H_
