// Trainer: turns positions of an epoch into gradients and evaluations for a worker task. It owns
// the data, the network, and the GradientStep that joins them.
//
// Tables are flat arrays as the servers hold them: [0] parameters, [1] statistics if the model has
// any.
// Thread safety: used by one thread at a time; its own threads decode batches ahead.
#ifndef CAPSTAN_WORKER_TRAINING_TRAINER_TRAINER_H_
#define CAPSTAN_WORKER_TRAINING_TRAINER_TRAINER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_plan.h"
#include "common/types/ids.h"
#include "kernels/backend_group.h"
#include "proto/job.pb.h"
#include "worker/training/network.h"
#include "worker/training/step/exchange_formats.h"
#include "worker/training/trainer/gradient_step.h"

namespace capstan::worker {

class Trainer {
 public:
  using Tables = std::vector<std::vector<float>>;

  // Loads the job's data and prepares its model on all of `group`.
  // REQUIRES: CheckJob (common/job/check/check_job.h) found nothing wrong with `job`.
  // Errors: those of LoadDataset, PlanModel, MakeAugmentation and Network::Create;
  // kInvalidArgument  test or validation images differ in shape or labels from training images;
  // kDataLoss         a split has not the number of images that is in its block_examples.
  //   observer  see Network::Create
  //   formats   the formats that the caller exchanges with servers; see exchanges()
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const v1::JobSpec& job,
                                                         kernels::BackendGroup group,
                                                         StepObserver* observer = nullptr,
                                                         ExchangeFormats formats = {});
  // Same as above, on the CPU backend with resources.threads threads.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const v1::JobSpec& job);
  virtual ~Trainer() = default;

  virtual const ModelPlan& plan() const = 0;
  // The format in which Forward may be given parameters, instead of fp32, and that in which
  // Backward gives the gradient. A device has those of Create's `formats`, but fp32 gradients if
  // the host multiplies them: then the caller rounds. The host's backends have fp32.
  virtual ExchangeFormats exchanges() const = 0;
  virtual int64_t train_samples() const = 0;
  // 0 if there is no such split.
  virtual int64_t validation_samples() const = 0;
  virtual int64_t test_samples() const = 0;

  // Forward and Backward compute one micro-batch as GradientStep does, on the samples at its
  // positions.
  //   parameters  still on their way if `needed` is not null (Network::Forward)
  //   ahead       the micro-batches that come next, in order: decoded while this one is computed
  // Errors: those of GradientStep::Forward; kInvalidArgument  positions outside
  // [0, train_samples()).
  virtual absl::Status Forward(const MicroBatch& micro_batch, ParameterView parameters,
                               absl::Span<const MicroBatch> ahead = {},
                               const ParametersNeeded& needed = nullptr) = 0;
  //   gradient, statistics, ready  see GradientStep::Backward
  // Errors: those of GradientStep::Backward (kOutOfRange: diverged).
  virtual absl::StatusOr<BatchResult> Backward(GradientView gradient, absl::Span<float> statistics,
                                               const GradientReady& ready = nullptr) = 0;
  // Calls both, with the plan's tables; overwrites *gradient. REQUIRES: the gradient is exchanged
  // as fp32. Errors: also kInvalidArgument  another number of tables.
  absl::StatusOr<BatchResult> Train(const MicroBatch& micro_batch, const Tables& tables,
                                    Tables* gradient, absl::Span<const MicroBatch> ahead = {});

  // Computes loss, hits and sums of outputs over the samples at `positions`, of any number. The
  // validation samples (in file order) have the first positions, the test samples the positions
  // after them; the positions of one call are in one split.
  //   which  kSame: the tables have the values of the last call of Evaluate
  // Errors: those of EvaluateSplit; kFailedPrecondition  there is no test set.
  virtual absl::StatusOr<BatchResult> Evaluate(Range positions, const Tables& tables,
                                               Parameters which = Parameters::kNew) = 0;

  // The indices in `group` of devices that do not answer any more (BackendGroup::Silent).
  virtual std::vector<size_t> SilentDevices() const = 0;
};

// Tables of the plan's sizes, filled with zeros.
Trainer::Tables MakeTrainerTables(const ModelPlan& plan);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_TRAINER_TRAINER_H_
