// Computation: computes a task's works (task_board.h); reads values of tables and gives gradients.
//
// There is one class for each kind of job: layers on images; models on examples, whose parameters
// are rows that each batch names; and programs of users. It knows no server and no scheduler.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_COMPUTATION_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_COMPUTATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/types/progress.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/messages/message_codec.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"
#include "worker/training/step/step_arrays.h"
#include "worker/training/step/step_observer.h"

namespace capstan::worker {

class TableOperations;

// Called during Train: the gradient of the first dense table is final from element `first` on.
using GradientPartReady = std::function<void(int64_t first)>;

// A gradient, by table: as fp32, or as 16-bit values if a device gave it so (message_codec.h).
struct GradientArrays {
  TableArrays floats;
  HalfArrays halves;
};

class Computation {
 public:
  // Makes the computation of a job without a program: opens the task's device, loads the job's data
  // and makes its model.
  //   gpus      indices of the task's own GPUs; empty: the CPU
  //   progress  called for the examples that are read and counted; not for images
  //   observer  see Network::Create; not used for models on examples
  // REQUIRES: CheckJob (common/job/check/check_job.h) found nothing wrong with `job`.
  // Errors: those of MakeBackends and Trainer::Create, or of SparseTrainer::Create.
  static absl::StatusOr<std::unique_ptr<Computation>> Create(const v1::JobSpec& job,
                                                             const std::vector<int>& gpus,
                                                             const Progress& progress = nullptr,
                                                             StepObserver* observer = nullptr);
  virtual ~Computation() = default;

  virtual const std::vector<v1::TableSpec>& tables() const = 0;  // Ordered by index.
  virtual int64_t train_samples() const = 0;
  // The length of `upcoming` below, at most; at least 1.
  virtual int batches_planned() const { return 4; }

  // Called before the pull for `work`: makes room in *parameters and returns the keys of the rows
  // to pull. The parameters of the last pull are lost, unless BeginTraining has taken them.
  //   upcoming  `work` and the works planned after it, whose data is then made ready meanwhile; any
  //             other list if `work` is in no plan
  virtual absl::StatusOr<AllTableKeys> BeginPull(const Work& work,
                                                 const std::vector<Work>& upcoming,
                                                 TableArrays* parameters) = 0;

  // The arrays into which pulls for training write tables whose values a device takes in the 16-bit
  // format that servers send; null: all go to *parameters.
  virtual HalfArrays* half_parameters() { return nullptr; }

  // Called when the pull for training has ended well: *parameters has the pulled values. Returns
  // the rows that were read.
  virtual RowsRead Pulled(const OpDone& done, const TableArrays& parameters) {
    static_cast<void>(parameters);
    return {.staleness = done.staleness};
  }

  // Called before Train of `work`, for which *parameters were pulled: makes room in *gradient and
  // returns the keys of its rows. From then on the parameters of the next work may be pulled: if
  // parameters are rows this keeps the pulled ones aside, and a device has copied its parameters in
  // Forward.
  virtual AllTableKeys BeginTraining(const Work& work, TableArrays* parameters,
                                     GradientArrays* gradient) = 0;

  // Computes the part of training `work` that reads *parameters, which were pulled for it, or are
  // being pulled; in that case `needed` waits for those of the first dense table. `upcoming`: see
  // BeginPull. Returns false, and computes nothing, if `needed` has returned false. Train reports
  // errors of the computation. Called before BeginTraining; models whose parameters are rows do
  // nothing here.
  virtual bool Forward(const Work& work, const std::vector<Work>& upcoming,
                       const TableArrays& parameters, const ParametersNeeded& needed) {
    static_cast<void>(work), static_cast<void>(upcoming), static_cast<void>(parameters);
    static_cast<void>(needed);
    return true;
  }

  // Computes the gradient of `work`, for which Forward and BeginTraining were called last.
  // Errors: kOutOfRange  diverged.
  virtual absl::StatusOr<WorkResult> Train(const Work& work, GradientArrays* gradient,
                                           const GradientPartReady& ready) = 0;

  // ---- a program at its own pace, by the task's thread
  // Offers the run `work` to the program, which then uses `tables`. `changed` is called, by any
  // thread, when RunResult has a value.
  virtual void BeginRun(const Work& work, std::shared_ptr<TableOperations> tables,
                        std::function<void()> changed) {
    static_cast<void>(work), static_cast<void>(tables), static_cast<void>(changed);
  }
  // The result of the run. No value: it goes on.
  virtual std::optional<absl::StatusOr<WorkResult>> RunResult() {
    return absl::UnimplementedError("this computation is no program");
  }
  virtual void EndRun() {}  // The program has no run any more; `changed` is not called again.

  // Describes for the log what it keeps beside its parameters; empty: nothing.
  virtual std::string Kept() const { return ""; }

  // Evaluates `work`, for which *parameters were pulled last.
  virtual absl::StatusOr<WorkResult> Evaluate(const Work& work, const TableArrays& parameters) = 0;
};

// Makes a task's computation, as Computation::Create does.
using MakeComputation = std::function<absl::StatusOr<std::shared_ptr<Computation>>(
    const v1::JobSpec& job, const std::vector<int>& gpus, const Progress& progress,
    StepObserver* observer)>;

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_COMPUTATION_H_
