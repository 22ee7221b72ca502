// Computation: what a task computes: between the works of its loop and the numbers of its tables.
//
// One class a kind of model: layers on images, and models on examples, whose parameters are rows
// that each batch names. Knows no server and no scheduler.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/types/progress.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/message_codec.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"
#include "worker/training/step_arrays.h"
#include "worker/training/step_observer.h"

namespace capstan::worker {

// Called while Train goes on: the gradient of the first dense table is final from this element on.
using GradientPartReady = std::function<void(int64_t first)>;

// A gradient, by table: as fp32, or as halves where it came from a device so (message_codec.h).
struct GradientArrays {
  TableArrays floats;
  HalfArrays halves;
};

class Computation {
 public:
  // Opens the task's device, loads the job's data and makes its model.
  //   gpus      indices of those that are the task's own; empty: the CPU
  //   progress  told of the examples that are read and counted; of images nothing
  //   observer  as Network::Create's; learns nothing of models on examples
  // REQUIRES: CheckJob (common/job/check_job.h) found nothing wrong with `job`.
  // Errors: those of MakeBackends and Trainer::Create, or of SparseTrainer::Create.
  static absl::StatusOr<std::unique_ptr<Computation>> Create(const v1::JobSpec& job,
                                                             const std::vector<int>& gpus,
                                                             const Progress& progress = nullptr,
                                                             StepObserver* observer = nullptr);
  virtual ~Computation() = default;

  virtual const std::vector<v1::TableSpec>& tables() const = 0;  // By index.
  virtual int64_t train_samples() const = 0;

  // What `work` needs is about to be pulled: makes room in *parameters and returns which rows.
  // What was pulled before is lost, unless it has been given to BeginTraining.
  //   upcoming  `work` and what is planned to come after it, so that its data can be made ready
  //             meanwhile; any other list if `work` is in no plan
  virtual absl::StatusOr<AllTableKeys> BeginPull(const Work& work,
                                                 const std::vector<Work>& upcoming,
                                                 TableArrays* parameters) = 0;

  // Where pulls for training write tables whose values a device takes as the halves that servers
  // send; null: all go to *parameters.
  virtual HalfArrays* half_parameters() { return nullptr; }

  // What was to be pulled for training is in *parameters, and `done` is how the pull has ended: OK.
  virtual RowsRead Pulled(const OpDone& done, const TableArrays& parameters) {
    static_cast<void>(parameters);
    return {.staleness = done.staleness};
  }

  // `work`, for which *parameters were pulled, is about to be trained: makes room in *gradient and
  // returns which rows it is of. Where parameters are rows, what was pulled is kept aside; a device
  // has taken its copy in Forward: the next work's may be pulled meanwhile.
  virtual AllTableKeys BeginTraining(const Work& work, TableArrays* parameters,
                                     GradientArrays* gradient) = 0;

  // Computes the part of training `work` that reads *parameters, which were pulled for it, or are
  // being pulled: then `needed` waits for those of the first dense table. `upcoming`: as
  // BeginPull's. Returns false if `needed` has: then nothing was computed. What goes wrong in
  // computing is for Train to say. Before BeginTraining; models whose parameters are rows do
  // nothing here.
  virtual bool Forward(const Work& work, const std::vector<Work>& upcoming,
                       const TableArrays& parameters, const ParametersNeeded& needed) {
    static_cast<void>(work), static_cast<void>(upcoming), static_cast<void>(parameters);
    static_cast<void>(needed);
    return true;
  }

  // The gradient of `work`, for which Forward and BeginTraining were called last.
  // Errors: kOutOfRange  diverged.
  virtual absl::StatusOr<WorkResult> Train(const Work& work, GradientArrays* gradient,
                                           const GradientPartReady& ready) = 0;

  // What it keeps beside its parameters, for the log; empty: nothing.
  virtual std::string Kept() const { return ""; }

  // Of `work`, for which *parameters were pulled last.
  virtual absl::StatusOr<WorkResult> Evaluate(const Work& work, const TableArrays& parameters) = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_H_
