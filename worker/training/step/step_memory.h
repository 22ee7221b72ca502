// StepMemory: the memory of a step's operands, and the copies to it and back.
//
// If the backend computes in the host's memory the caller's arrays are the operands: nothing is
// copied. A device has its own arrays:
//
//   host ──copied──► pinned ──upload stream──► device      batch, parameters (first layers first)
//                                              compute stream: the steps
//   host ◄──copied── pinned ◄─download stream── device     gradient (last layers first), results
//
// Parameters and gradients are copied in parts, while the steps of other parts run. A step is
//   Begin, { UploadParameters, UseParameters, steps }..., ForwardDone,
//   BeginBackward, { steps, GradientComputed, TakeGradient }..., End
// and when End returns all results are in the host's arrays. In the steady state nothing is
// allocated.
//
// If several devices compute parts of a batch only the first exchanges parameters and gradient with
// the host; the others exchange theirs with it in between (step_exchange.h), on the same streams.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_STEP_MEMORY_H_
#define CAPSTAN_WORKER_TRAINING_STEP_STEP_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_plan.h"
#include "kernels/backend.h"
#include "kernels/tensor_view.h"
#include "worker/training/program/program.h"
#include "worker/training/step/exchange_formats.h"
#include "worker/training/step/step_arrays.h"
#include "worker/training/step/step_watch.h"

namespace capstan::worker {

// UploadParameters and TakeGradient are not called for followers, which lack the pinned memory.
enum class StepRole { kFirst, kFollower };

class StepMemory {
 public:
  // The first address of every Place.
  using Bases = std::array<std::byte*, kPlaceCount>;

  // Batches have up to `batch_size_max` samples (>= 1). `plan`, `backend` and `watch`, which
  // records copies, outlive the result. The host's role is kFirst; it copies nothing and ignores
  // `formats`.
  static std::unique_ptr<StepMemory> Create(const ModelPlan& plan, kernels::Backend& backend,
                                            int64_t batch_size_max, StepRole role,
                                            const ExchangeFormats& formats, StepWatch& watch);
  virtual ~StepMemory() = default;

  // The bytes of device memory for batches of up to `n` samples, beside the arena and the
  // libraries' workspace. 0 on the host.
  virtual int64_t FixedBytes(int64_t n) = 0;
  // Allocates that memory; called once, before the first step. Errors: kResourceExhausted.
  virtual absl::Status Allocate() = 0;

  // Makes the arena at least `bytes` large; true if it has moved, and its contents are lost.
  // REQUIRES: between steps. Errors: kResourceExhausted.
  absl::StatusOr<bool> ReserveArena(int64_t bytes);

  // The number of parameters that are worth a part of their own.
  virtual int64_t part_elements() const = 0;

  // Begins a step. `arrays` and what they borrow stay until End.
  // REQUIRES: their sizes are the plan's; 1 <= batch.n() <= batch_size_max; on a device its labels
  // were checked; no work of an earlier step that was given up runs any more.
  // Errors: those of the device.
  virtual absl::Status Begin(const ForwardArrays& arrays) = 0;
  // Same as Begin, with the batch and the parameters of the step before, which a device still has.
  // REQUIRES: this is a device's; that step was a training step, and has ended.
  virtual void BeginAgain(absl::Span<float> moments) = 0;
  // Begins to copy parameters [begin, end), which have arrived on the host, to a device.
  virtual absl::Status UploadParameters(int64_t begin, int64_t end) = 0;
  // Steps that are run from now on may read these parameters.
  virtual absl::Status UseParameters(int64_t begin, int64_t end) = 0;
  // The whole forward pass is enqueued: copies its results.
  virtual absl::Status ForwardDone(const Operand& loss, const Operand& logits) = 0;
  // Begins the backward pass. `arrays` and what they borrow stay until End.
  virtual void BeginBackward(const BackwardArrays& arrays) = 0;
  // Steps that have been run give the gradient's elements [begin, end): they may be downloaded.
  virtual absl::Status GradientComputed(int64_t begin, int64_t end) = 0;
  // Downloads these elements. BackwardArrays::ready is called for them, now or in End, up to the
  // first part that is not finite.
  virtual absl::Status TakeGradient(int64_t begin, int64_t end) = 0;
  // Steps that have been run give the whole gradient: enqueues `update` (Network::UpdateInPlace)
  // behind them; the next step reads the updated parameters. REQUIRES: this is a device's.
  virtual absl::Status UpdateParameters(
      const std::function<absl::Status(float* parameters, const float* gradient)>& update) = 0;
  // Waits for all enqueued steps. Errors: faults of the device.
  virtual absl::Status End() = 0;

  // May begin to upload a batch that a later step will get under the same name. REQUIRES: what
  // Begin requires of a batch.
  virtual absl::Status Stage(const BatchView& batch) = 0;

  kernels::TensorView Resolve(const Operand& operand) const {
    std::byte* const base = bases_[static_cast<size_t>(operand.place)];
    return {base + operand.offset, operand.count, operand.dtype};
  }
  // The first address of a place.
  std::byte* base(Place place) const { return bases_[static_cast<size_t>(place)]; }
  // The results, in host memory. REQUIRES: End was called, and no step has begun since.
  const float* loss() const { return loss_; }                    // [n]
  const kernels::TensorView& logits() const { return logits_; }  // [n, classes], TensorType().
  // False if a part of the gradient was checked and is not finite. REQUIRES: as above.
  bool gradient_finite() const { return gradient_finite_; }

 protected:
  explicit StepMemory(kernels::Backend& backend)
      : backend_(backend), arena_(nullptr, kernels::BackendDeleter{&backend}) {}
  void SetBase(Place place, void* base) {
    bases_[static_cast<size_t>(place)] = static_cast<std::byte*>(base);
  }

  kernels::Backend& backend_;
  const float* loss_ = nullptr;
  kernels::TensorView logits_;
  bool gradient_finite_ = true;

 private:
  Bases bases_{};
  kernels::BackendMemory arena_;
  int64_t arena_bytes_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_STEP_MEMORY_H_
