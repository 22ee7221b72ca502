// Network: executes a ModelPlan on a backend: computes the loss and gradient of a batch.
//
// Parameters and gradients are flat arrays in table order (ModelPlan::parameters), so that shards
// are slices of them and nothing is copied between training and the wire. For a device they are
// copied there and back in parts, in parallel with the arithmetic, and the steps between two parts
// are launched as one graph if the device can record them.
//
// Several devices compute parts of each batch (batch_parts.h): the first one gets the parameters
// and broadcasts them, and gives one gradient, the sum of all devices' gradients. Batch norm uses
// the moments of each part, as in PyTorch's DistributedDataParallel; a step gives their mean,
// weighted by samples, as if each device had computed a slot of its own (PyTorch keeps those of
// rank 0). Every device draws its own dropout masks. Thread safety: used by one thread at a time.
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
#include "worker/training/step/exchange_formats.h"
#include "worker/training/step/step_arrays.h"
#include "worker/training/step/step_observer.h"

namespace capstan::worker {

struct BatchResult {
  double loss_sum = 0.0;    // Sum of the loss over the batch; a cross-entropy is in nats.
  int64_t correct = 0;      // Samples with argmax(logits) == label; 0 if labels are no classes.
  OutputSums outputs = {};  // Evaluation only.
  ScoreCounts scores = {};  // Evaluation with several labels only: each output's logit.
  // Backward: false if a number of the gradient is not finite. The host's backends check it only if
  // there is `ready`; a device always does.
  bool gradient_finite = true;
};

class Network {
 public:
  //   observer  may be null; else outlives the network and is called for the steps that it watches
  //   formats   for the exchange between a device and the host; the host's backends ignore it
  // Errors: kInvalidArgument    batch_size_max < 1.
  //         kUnimplemented      a loss of numbers, or weights of a loss, on a device. (A layer that
  //                             devices lack is refused when it is to run.)
  //         kResourceExhausted  a device has no memory for parameters, gradient and batches; says
  //                             how many bytes they need, how many are free, and for which batch
  //                             these are enough.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const ModelPlan& plan,
                                                         kernels::Backend& backend,
                                                         int64_t batch_size_max,
                                                         StepObserver* observer = nullptr,
                                                         const ExchangeFormats& formats = {});
  // Same as above, on all devices of a group, which outlives the network. Errors name their device,
  // and batch sizes in them are those of its part. The observer is called for the first device.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const ModelPlan& plan,
                                                         const kernels::BackendGroup& group,
                                                         int64_t batch_size_max,
                                                         StepObserver* observer = nullptr,
                                                         const ExchangeFormats& formats = {});
  virtual ~Network() = default;

  // The formats that Forward may be given instead of fp32, and that Backward gives.
  virtual ExchangeFormats exchanges() const = 0;

  // A step in training mode is a forward pass and then a backward pass. All arrays stay until it
  // has ended, except for parameters, of which a device has copies when Forward has returned.
  //
  // Runs the forward pass.
  //   parameters        [plan.parameter_count]  read: fp32, or 16-bit in exchanges().parameters
  //   dropout_key                               key from which every mask of this step is drawn
  //   needed                                    waits for parameters; null: all are there
  // Errors: kInvalidArgument    batch.n() is outside [1, batch_size_max], an array has another size
  //                             than above, or a label is out of range.
  //         kCancelled          `needed` has returned false: there is no step.
  //         kResourceExhausted  activations do not fit in memory; says how many bytes they need,
  //                             and on a device what Create says.
  //         else                those of Backend::Prepare and Run, with the layer's name.
  virtual absl::Status Forward(const BatchView& batch, ParameterView parameters,
                               uint64_t dropout_key, const ParametersNeeded& needed = nullptr) = 0;

  // Runs the backward pass of the step that Forward has begun, and returns the step's result.
  //   gradient_scale                            factor of the gradient
  //   gradient          [plan.parameter_count]  overwritten: gradient_scale *
  //                                             d(sum of losses)/d(parameter), in the format
  //                                             exchanges().gradients
  //   batch_statistics  [plan.statistic_count]  overwritten: means and (unbiased, as PyTorch's)
  //                                             variances of this batch
  //   ready                                     may be null; not called for a part that is not
  //                                             finite, nor for those after it
  //   enqueued                                  may be null; called once when a device has all of
  //                                             its work and goes on by itself: the time to Stage
  //                                             the next batch. The host's backends never call it
  // Errors: kFailedPrecondition  the last call was no Forward, or it failed.
  //         else                 those of Forward.
  virtual absl::StatusOr<BatchResult> Backward(float gradient_scale, GradientView gradient,
                                               absl::Span<float> batch_statistics,
                                               const GradientReady& ready = nullptr,
                                               const std::function<void()>& enqueued = nullptr) = 0;

  // Repeats the forward pass of the last step, with the same batch and parameters; Backward can
  // follow, with another scale. REQUIRES: a device's network; the batch stays until Backward has
  // ended; the last call was Backward, and ended well.
  // Errors: kFailedPrecondition  another call was the last, or the backend is no device's.
  //         else                 those of Forward.
  virtual absl::Status Repeat() = 0;

  // Runs both passes.
  absl::StatusOr<BatchResult> Train(const BatchView& batch, ParameterView parameters,
                                    float gradient_scale, uint64_t dropout_key,
                                    GradientView gradient, absl::Span<float> batch_statistics,
                                    const GradientReady& ready = nullptr,
                                    const std::function<void()>& enqueued = nullptr);

  // Runs one forward pass in inference mode (running statistics, no dropout).
  //   which  kSame: the parameters have the values of the last evaluation; if no other step came
  //          between, a device does not copy them again
  // Errors: as Forward.
  virtual absl::StatusOr<BatchResult> Evaluate(const BatchView& batch,
                                               absl::Span<const float> parameters,
                                               absl::Span<const float> statistics,
                                               Parameters which = Parameters::kNew) = 0;

  // Appends the logits of the last step, an evaluation, as fp32: [batch.n(), classes].
  // REQUIRES: the last call was Evaluate, and ended well.
  virtual void AppendLogits(std::vector<float>* logits) const = 0;

  // Updates the parameters of a device that keeps them: enqueues this on the stream of the ops
  // (kernels::Stream::kCompute). It is recorded with the backward pass, and is not called in steps
  // that launch the record: it must enqueue the same work in each step of a network, with the same
  // arguments.
  //   parameters, gradient  [plan.parameter_count], in the device's memory
  using UpdateInPlace = std::function<absl::Status(float* parameters, const float* gradient)>;

  // Runs a step of training without servers, on one device: both passes and the update; only the
  // result comes back. The device launches one graph for each pass, from the second step on. Other
  // arguments and errors: see Forward and Backward.
  //   parameters  not read if the last call was this method and ended well: then the device has
  //               those that `update` has left
  // Errors: kFailedPrecondition  the network is not on one device; else also those of `update`.
  virtual absl::StatusOr<BatchResult> TrainInPlace(
      const BatchView& batch, absl::Span<const float> parameters, uint64_t dropout_key,
      float gradient_scale, absl::Span<float> batch_statistics, const UpdateInPlace& update,
      const std::function<void()>& enqueued = nullptr) = 0;

  // Begins to upload a batch (copied before this returns) that a later step will get under the same
  // name, which is not 0. Useful only on devices, during a step: see Backward.
  // Errors: kInvalidArgument  as Forward.
  virtual absl::Status Stage(const BatchView& batch) = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_NETWORK_H_
