// Replica: a model's programs on one backend, with their memory and their recorded graphs.
//
// A Network has one, or one on each of several devices, which compute parts of each batch.
// StepExchange moves data between them and the host; a step of a replica is
//
//   Prepare ─► Begin ─► RunForward, segment by segment ─► ForwardDone
//           ─► BeginBackward ─► RunBackward, segment by segment ─► End
//
// If it has no samples it has no segments to run, and gives a gradient of zeros.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_REPLICA_H_
#define CAPSTAN_WORKER_TRAINING_STEP_REPLICA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_plan.h"
#include "kernels/backend.h"
#include "worker/training/program/program.h"
#include "worker/training/program/segments.h"
#include "worker/training/step/exchange_formats.h"
#include "worker/training/step/step_arrays.h"
#include "worker/training/step/step_memory.h"
#include "worker/training/step/step_observer.h"
#include "worker/training/step/step_watch.h"

namespace capstan::worker {

class Replica {
 public:
  // Batches have up to `batch_size_max` samples (>= 1). `plan` and `backend` outlive the replica,
  // as does `observer`, which may be null.
  Replica(const ModelPlan& plan, kernels::Backend& backend, int64_t batch_size_max, StepRole role,
          const ExchangeFormats& formats, StepObserver* observer);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Allocates the memory for parameters, gradient and batches. Errors: kResourceExhausted, as
  // Network::Create.
  absl::Status Allocate();

  StepMemory& memory() { return *memory_; }
  const StepMemory& memory() const { return *memory_; }

  // Prepares or finds the program of the next step, with 0 <= n <= batch_size_max samples.
  // Errors: those of Network::Forward.
  absl::Status Prepare(int64_t n, ProgramKind kind, Cut cut);
  int64_t n() const { return n_; }
  const Segments& segments() const;  // REQUIRES: n() > 0; the same holds for running them.

  // Begins a step with `batch` of n() samples; the arrays stay until End. The replica has its own
  // array of moments.
  absl::Status Begin(const BatchView& batch, ParameterView parameters,
                     absl::Span<const float> statistics, uint64_t dropout_key);
  // Begins the same step again, on a device.
  absl::Status BeginAgain();
  absl::Status RunForward(size_t segment);
  absl::Status ForwardDone();
  // Begins the backward pass of a training step.
  absl::Status BeginBackward(float gradient_scale, const BackwardArrays& arrays);
  // `then` may be null; the work that it enqueues belongs to the segment, and is recorded with it.
  // REQUIRES, for `then`: a device; it enqueues the same work in each step.
  absl::Status RunBackward(size_t segment, const std::function<absl::Status()>& then = nullptr);
  absl::Status End();
  // Gives up a step: waits until nothing of it runs any more.
  absl::Status GiveUp();

  // The results of the step that has ended.
  absl::Span<const float> moments() const { return moments_; }  // Variances are unbiased.
  double LossSum() const;
  int64_t Correct(absl::Span<const int32_t> labels) const;  // [n]
  void AppendLogits(std::vector<float>* logits) const;      // [n, classes]

 private:
  struct PreparedProgram;
  struct Pass;

  absl::StatusOr<PreparedProgram*> Find(int64_t n, ProgramKind kind, Cut cut);
  absl::Status ReserveArena(int64_t bytes, int64_t n, ProgramKind kind);
  absl::Status NoMemory(int64_t n, ProgramKind kind, int64_t bytes);
  absl::StatusOr<int64_t> LargestBatch(int64_t n, ProgramKind kind, int64_t bytes);
  std::string LayerName(int layer) const;
  absl::Status PrepareSteps(PreparedProgram& prepared, const std::vector<Step>& steps,
                            std::vector<kernels::Plan*>& plans);
  absl::Status RunSegment(const Pass& pass, size_t index, const Segment& segment);
  template <typename Run>
  absl::Status Watched(const Pass& pass, size_t first, size_t last, const Run& run);
  absl::Status RunStep(const Pass& pass, size_t index);
  // Returns the logits of sample `i`, [classes]; they are valid until the next call.
  absl::Span<const float> LogitsOf(int64_t i) const;
  void MakeUnbiased(const BatchMoments& moments);

  const ModelPlan& plan_;
  kernels::Backend& backend_;
  const int64_t batch_size_max_;
  StepWatch watch_;
  const std::unique_ptr<StepMemory> memory_;  // Shared by all programs: one runs at a time.
  std::vector<std::unique_ptr<PreparedProgram>> programs_;  // The most recently used is last.
  std::vector<float> moments_;                              // [statistic_count], the step's.

  // The current step.
  PreparedProgram* prepared_ = nullptr;  // Null: it has no samples.
  int64_t n_ = 0;
  std::vector<int32_t> keys_;           // The keys of its masks: ForwardArrays::keys.
  mutable std::vector<float> widened_;  // LogitsOf's result if logits are 16-bit.
  float scale_ = 1.0f;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_REPLICA_H_
