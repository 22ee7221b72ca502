// Network: a ModelPlan made executable on a backend: loss and gradient of a batch.
//
// Parameters and gradients are flat arrays in table order (ModelPlan::parameters), so that shards
// are slices of them and nothing is copied between training and the wire. Thread safety: used by
// one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_NETWORK_H_
#define CAPSTAN_WORKER_TRAINING_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_plan.h"
#include "kernels/backend.h"

namespace capstan::worker {

// A decoded batch. Borrowed for the call.
struct BatchView {
  absl::Span<const float> images;    // [n, h, w, c]
  absl::Span<const int32_t> labels;  // [n]
  int64_t n() const { return static_cast<int64_t>(labels.size()); }
};

struct BatchResult {
  double loss_sum = 0.0;  // Sum over the batch of the cross-entropy, nats.
  int64_t correct = 0;    // argmax(logits) == label.
};

// Called in the backward pass: every gradient element from `first` on is final, and no parameter
// from there on is read any more. `first` falls from call to call; the end of the pass is not told.
using GradientReady = std::function<void(int64_t first)>;

class Network {
 public:
  // Errors: those of Backend::Prepare; kResourceExhausted  activations do not fit; says how many
  // bytes they need.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const ModelPlan& plan,
                                                         kernels::Backend& backend,
                                                         int64_t batch_size_max);
  virtual ~Network() = default;

  // One forward and backward pass in training mode.
  //   parameters        [plan.parameter_count]  read
  //   gradient_scale                            factor of the gradient
  //   dropout_key                               draws every mask of this pass
  //   gradient          [plan.parameter_count]  overwritten: gradient_scale *
  //                                             d(sum of losses)/d(parameter)
  //   batch_statistics  [plan.statistic_count]  overwritten: means and (unbiased, as PyTorch's)
  //                                             variances of this batch
  //   ready                                     may be null
  // Errors: kInvalidArgument    1 <= batch.n() <= batch_size_max or another size does not hold, or
  //                             a label is out of range.
  //         kResourceExhausted  activations do not fit in memory; says how many bytes they need.
  //         else                those of Backend::Prepare and Run, with the layer's name.
  virtual absl::StatusOr<BatchResult> Train(const BatchView& batch,
                                            absl::Span<const float> parameters,
                                            float gradient_scale, uint64_t dropout_key,
                                            absl::Span<float> gradient,
                                            absl::Span<float> batch_statistics,
                                            const GradientReady& ready = nullptr) = 0;

  // One forward pass in inference mode (running statistics, no dropout). Errors: as Train.
  virtual absl::StatusOr<BatchResult> Evaluate(const BatchView& batch,
                                               absl::Span<const float> parameters,
                                               absl::Span<const float> statistics) = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_NETWORK_H_
