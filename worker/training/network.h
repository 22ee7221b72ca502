// Network: a ModelPlan made executable on a backend: loss and gradient of a batch.
//
// Parameters and gradients are flat arrays in table order (ModelPlan::parameters), so that shards
// are slices of them and nothing is copied between training and the wire. On a device they are
// copied there and back in parts, beside the arithmetic, and the steps between two parts are
// launched as one graph where the device can record them.
//
// Several devices compute parts of each batch (batch_parts.h): parameters go to the first, which
// hands them on, and come back as one gradient, the sum of theirs. Batch norm's moments are those
// of each part, as in PyTorch's DistributedDataParallel; what a step gives is their mean, weighted
// by samples, as if each device had computed a slot of its own (there rank 0's are kept). Every
// device draws dropout masks of its own. Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_NETWORK_H_
#define CAPSTAN_WORKER_TRAINING_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/model/model_plan.h"
#include "kernels/backend.h"
#include "kernels/backend_group.h"
#include "worker/training/exchange_formats.h"
#include "worker/training/step_arrays.h"
#include "worker/training/step_observer.h"

namespace capstan::worker {

struct BatchResult {
  double loss_sum = 0.0;    // Sum over the batch of the loss; of a cross-entropy in nats.
  int64_t correct = 0;      // argmax(logits) == label; 0 if labels are no classes.
  OutputSums outputs = {};  // Evaluation only,
  ScoreCounts scores = {};  // likewise: of several labels, each output's logit.
  // Backward: false if a number of the gradient is not finite. The host's backends look for one
  // only where parts are told (`ready`), a device always.
  bool gradient_finite = true;
};

class Network {
 public:
  //   observer  may be null; else outlives the network and learns of the steps that it watches
  //   formats   of what a device and the host exchange; the host's backends have fp32
  // Errors: kInvalidArgument    batch_size_max < 1.
  //         kUnimplemented      a loss of numbers, or weights of a loss, on a device.
  //         kResourceExhausted  a device has no memory for parameters, gradient and batches; says
  //                             how many bytes they need, how many are free, and for which batch
  //                             these are enough.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const ModelPlan& plan,
                                                         kernels::Backend& backend,
                                                         int64_t batch_size_max,
                                                         StepObserver* observer = nullptr,
                                                         const ExchangeFormats& formats = {});
  // On all devices of a group, which outlives the network. Errors name the device that they are of,
  // and sizes of batches those of its part. The observer learns of the first device.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const ModelPlan& plan,
                                                         const kernels::BackendGroup& group,
                                                         int64_t batch_size_max,
                                                         StepObserver* observer = nullptr,
                                                         const ExchangeFormats& formats = {});
  virtual ~Network() = default;

  // What Forward may be given instead of fp32, and what Backward gives.
  virtual ExchangeFormats exchanges() const = 0;

  // A step in training mode is a forward pass and then a backward pass. All arrays stay until it
  // has ended, but for parameters, of which a device has copies once Forward has returned.
  //
  // The forward pass, or its part for which there are parameters.
  //   parameters        [plan.parameter_count]  read: fp32, or halves of exchanges().parameters
  //   dropout_key                               draws every mask of this step
  //   needed                                    null: all parameters are there
  // Errors: kInvalidArgument    1 <= batch.n() <= batch_size_max or another size does not hold, or
  //                             a label is out of range.
  //         kCancelled          `needed` has returned false: there is no step.
  //         kResourceExhausted  activations do not fit in memory; says how many bytes they need,
  //                             and of a device what Create says.
  //         else                those of Backend::Prepare and Run, with the layer's name.
  virtual absl::Status Forward(const BatchView& batch, ParameterView parameters,
                               uint64_t dropout_key, const ParametersNeeded& needed = nullptr) = 0;

  // The backward pass of the step that Forward has begun, and its result.
  //   gradient_scale                            factor of the gradient
  //   gradient          [plan.parameter_count]  overwritten: gradient_scale *
  //                                             d(sum of losses)/d(parameter), in the format
  //                                             exchanges().gradients
  //   batch_statistics  [plan.statistic_count]  overwritten: means and (unbiased, as PyTorch's)
  //                                             variances of this batch
  //   ready                                     may be null; not called for a part that is not
  //                                             finite, nor for those after it
  //   enqueued                                  may be null; called once by a device that has all
  //                                             of its work and goes on by itself: the time to
  //                                             Stage the next batch. By the host's backends never
  // Errors: kFailedPrecondition  the last call was no Forward, or it failed.
  //         else                 as Forward's.
  virtual absl::StatusOr<BatchResult> Backward(float gradient_scale, GradientView gradient,
                                               absl::Span<float> batch_statistics,
                                               const GradientReady& ready = nullptr,
                                               const std::function<void()>& enqueued = nullptr) = 0;

  // The forward pass of the last step once more, with the same batch and parameters; Backward can
  // follow, with another scale. REQUIRES: a device's network; the batch stays until Backward has
  // ended; the last call was Backward, and ended well.
  // Errors: kFailedPrecondition  another call was the last, or the backend is no device's.
  //         else                 those of Forward.
  virtual absl::Status Repeat() = 0;

  // Both passes.
  absl::StatusOr<BatchResult> Train(const BatchView& batch, ParameterView parameters,
                                    float gradient_scale, uint64_t dropout_key,
                                    GradientView gradient, absl::Span<float> batch_statistics,
                                    const GradientReady& ready = nullptr,
                                    const std::function<void()>& enqueued = nullptr);

  // One forward pass in inference mode (running statistics, no dropout).
  //   which  kSame: the parameters have the values of the last evaluation; if no other step came
  //          between, a device does not copy them again
  // Errors: as Forward.
  virtual absl::StatusOr<BatchResult> Evaluate(const BatchView& batch,
                                               absl::Span<const float> parameters,
                                               absl::Span<const float> statistics,
                                               Parameters which = Parameters::kNew) = 0;

  // Appends the logits of the evaluation that was the last step, [batch.n(), classes], as fp32.
  // REQUIRES: the last call was Evaluate, and ended well.
  virtual void AppendLogits(std::vector<float>* logits) const = 0;

  // Replaces the parameters of a device that keeps them: enqueues that where ops go
  // (kernels::Stream::kCompute). It is recorded with the backward pass, and not called in steps
  // that launch the record: it must enqueue the same in each step of a network, with the same
  // arguments.
  //   parameters, gradient  [plan.parameter_count], in the device's memory
  using UpdateInPlace = std::function<absl::Status(float* parameters, const float* gradient)>;

  // A step of training without servers, on one device: both passes and the update, of which only
  // the result comes back. The device launches one graph for each pass, from the second step on.
  // Other arguments and errors as those of Forward and Backward.
  //   parameters  read unless the last call was this one and ended well: then they are what
  //               `update` has left
  // Errors: kFailedPrecondition  the network is not on one device; else also those of `update`.
  virtual absl::StatusOr<BatchResult> TrainInPlace(
      const BatchView& batch, absl::Span<const float> parameters, uint64_t dropout_key,
      float gradient_scale, absl::Span<float> batch_statistics, const UpdateInPlace& update,
      const std::function<void()>& enqueued = nullptr) = 0;

  // Begins to upload a batch (copied before this returns) that a later step will be given under the
  // same name, which is not 0. Of use on devices only, and while a step goes on: see Backward.
  // Errors: kInvalidArgument  as Forward.
  virtual absl::Status Stage(const BatchView& batch) = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_NETWORK_H_
