// Backend: the small interface through which a worker does all its arithmetic.
//
// Preparing an op is slow (libraries choose and compile a kernel), running it is fast. Callers
// therefore prepare an op once per descriptor and then run it many times. kernels/reference is the
// specification (naive loops), kernels/cpu the fast CPU backend, kernels/cuda the one for NVIDIA
// GPUs. A backend knows nothing of jobs, servers or workers.
//
// Thread safety: one thread at a time uses a Backend and its Plans.
#ifndef CAPSTAN_KERNELS_BACKEND_H_
#define CAPSTAN_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {

// A prepared op. Backend::Prepare makes it; it owns what the library needs (primitives, scratch).
class Plan {
 public:
  virtual ~Plan() = default;
};

// Arguments that may change between the runs of one plan. A recorded graph repeats the recorded
// ones; an argument that changes with every step is an operand instead, such as dropout's key.
struct RunOptions {
  float scale = 1.0f;  // Backward ops of losses: dlogits is multiplied by it.
};

class DeviceBackend;

class Backend {
 public:
  virtual ~Backend() = default;

  // "reference", "cpu", "cuda".
  virtual std::string Name() const = 0;

  // The type of activations, their gradients and weights (the operands that WithTensorType lists in
  // op_check.h). All other numbers are fp32.
  virtual DataType TensorType() const { return DataType::kFloat32; }

  // True if Prepare accepts `desc`.
  virtual bool Supports(const OpDesc& desc) const = 0;

  // Builds the plan of an op.
  // Errors: kInvalidArgument    a field is out of range or shapes do not fit; the message names it.
  //         kUnimplemented      Supports(desc) is false.
  //         kResourceExhausted  not enough memory for the op's scratch.
  virtual absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) = 0;

  // Enqueues the op on views in the order that op.h gives. Views are fp32 (or TensorType()) unless
  // op.h says int32. Asynchronous on devices; the CPU backends finish before they return.
  // REQUIRES: counts are those of the descriptor (checked: kInvalidArgument).
  virtual absl::Status Run(Plan& plan, absl::Span<const TensorView> inputs,
                           absl::Span<const TensorView> outputs,
                           const RunOptions& options = {}) = 0;

  // Allocates memory of this backend, 64-byte aligned, uninitialised. nullptr if there is not
  // enough.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Copies between this backend's memory and the host's, in either direction.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;
  // Waits for all enqueued work. Errors: those of asynchronous work.
  virtual absl::Status Synchronize() = 0;

  // This backend as a device, which has more operations (device_backend.h). Null: its memory is the
  // host's, and any host array may be an operand.
  virtual DeviceBackend* device() { return nullptr; }
};

// Frees memory through the backend that allocated it.
struct BackendDeleter {
  Backend* backend = nullptr;
  void operator()(void* memory) const { backend->Free(memory); }
};
using BackendMemory = std::unique_ptr<void, BackendDeleter>;

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_BACKEND_H_
