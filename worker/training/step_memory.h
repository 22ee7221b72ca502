// StepMemory: where the operands of a step lie, and how they get there and back.
//
// Where the backend computes in the host's memory the caller's arrays are the operands: nothing is
// copied. A device has arrays of its own:
//
//   host ──copied──► pinned ──upload stream──► device      batch, parameters (first layers first)
//                                              compute stream: the steps
//   host ◄──copied── pinned ◄─download stream── device     gradient (last layers first), results
//
// Parameters go and gradients come in parts, while the steps of other parts run. A step is
//   Begin, { UploadParameters, UseParameters, steps }..., ForwardDone,
//   BeginBackward, { steps, GradientComputed, TakeGradient }..., End
// and by End all is in the host's arrays. In the steady state nothing is allocated.
//
// Of several devices that compute parts of a batch only the first exchanges parameters and gradient
// with the host: the others get and give them in between (step_exchange.h), on the same streams.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_MEMORY_H_
#define CAPSTAN_WORKER_TRAINING_STEP_MEMORY_H_

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
#include "worker/training/exchange_formats.h"
#include "worker/training/program/program.h"
#include "worker/training/step_arrays.h"
#include "worker/training/step_watch.h"

namespace capstan::worker {

// Followers do not UploadParameters and TakeGradient, and have no pinned memory for them.
enum class StepRole { kFirst, kFollower };

class StepMemory {
 public:
  // First address of every Place.
  using Bases = std::array<std::byte*, kPlaceCount>;

  // For batches of up to `batch_size_max` samples (>= 1). `plan` and `backend` outlive the result.
  // `watch` outlives it, too; it is told of copies. The host's role is kFirst; it copies nothing,
  // in whatever format.
  static std::unique_ptr<StepMemory> Create(const ModelPlan& plan, kernels::Backend& backend,
                                            int64_t batch_size_max, StepRole role,
                                            const ExchangeFormats& formats, StepWatch& watch);
  virtual ~StepMemory() = default;

  // Bytes of device memory for batches of up to `n` samples, beside arena and the libraries'
  // workspace. 0: the host's.
  virtual int64_t FixedBytes(int64_t n) = 0;
  // Takes that memory; once, before the first step. Errors: kResourceExhausted.
  virtual absl::Status Allocate() = 0;

  // Makes the arena at least `bytes` large; true if it has moved, and its contents are lost.
  // REQUIRES: between steps. Errors: kResourceExhausted.
  absl::StatusOr<bool> ReserveArena(int64_t bytes);

  // Parameters that are worth a part of their own.
  virtual int64_t part_elements() const = 0;

  // A step begins. `arrays` and what they borrow stay until End.
  // REQUIRES: their sizes are the plan's; 1 <= batch.n() <= batch_size_max; on a device its labels
  // were checked.
  // Errors: those of the device.
  // REQUIRES: of a step before that has not ended nothing runs any more.
  virtual absl::Status Begin(const ForwardArrays& arrays) = 0;
  // As Begin, with the batch and the parameters of the step before, which a device still has.
  // REQUIRES: a device's; that step was one of training, and has ended.
  virtual void BeginAgain(absl::Span<float> moments) = 0;
  // Parameters [begin, end), which are there on the host: a device begins to copy them.
  virtual absl::Status UploadParameters(int64_t begin, int64_t end) = 0;
  // Steps that are run from now on may read them.
  virtual absl::Status UseParameters(int64_t begin, int64_t end) = 0;
  // The forward pass is enqueued.
  virtual absl::Status ForwardDone(const Operand& loss, const Operand& logits) = 0;
  // The backward pass begins. `arrays` and what they borrow stay until End.
  virtual void BeginBackward(const BackwardArrays& arrays) = 0;
  // Steps that have been run give the gradient's elements [begin, end): they may be downloaded.
  virtual absl::Status GradientComputed(int64_t begin, int64_t end) = 0;
  // They are, and BackwardArrays::ready is told of them, at once or by End, up to the first part
  // that is not finite.
  virtual absl::Status TakeGradient(int64_t begin, int64_t end) = 0;
  // Steps that have been run give the whole gradient: `update` (Network::UpdateInPlace) is enqueued
  // behind them, and the next step reads what it leaves. REQUIRES: a device's.
  virtual absl::Status UpdateParameters(
      const std::function<absl::Status(float* parameters, const float* gradient)>& update) = 0;
  // All steps are enqueued: waits for them. Errors: faults of the device.
  virtual absl::Status End() = 0;

  // A batch that a later step will have, under its name: may be uploaded at once. REQUIRES: as
  // Begin's of a batch.
  virtual absl::Status Stage(const BatchView& batch) = 0;

  kernels::TensorView Resolve(const Operand& operand) const {
    std::byte* const base = bases_[static_cast<size_t>(operand.place)];
    return {base + operand.offset, operand.count, operand.dtype};
  }
  // Where a place begins.
  std::byte* base(Place place) const { return bases_[static_cast<size_t>(place)]; }
  // In host memory. REQUIRES: End has passed, and no step has begun since.
  const float* loss() const { return loss_; }                    // [n]
  const kernels::TensorView& logits() const { return logits_; }  // [n, classes], TensorType().
  // Likewise: false if a part of the gradient was looked at and is not finite.
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

#endif  // CAPSTAN_WORKER_TRAINING_STEP_MEMORY_H_
