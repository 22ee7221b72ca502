// Backend: the small interface behind which all arithmetic of a worker happens.
//
// Preparing an op is slow (libraries choose and compile a kernel), running it is fast: so ops are
// prepared once per descriptor and then run many times. kernels/reference is the specification
// (naive loops), kernels/cpu the fast CPU one. A backend knows nothing of jobs, servers or workers.
//
// Thread safety: a Backend and its Plans are used by one thread at a time.
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

// A prepared op; made by Backend::Prepare, owns whatever the library needs (primitives, scratch).
class Plan {
 public:
  virtual ~Plan() = default;
};

// What may change from run to run of one plan. A recorded graph keeps it; what has to change with
// every step is an operand, as the key of dropout.
struct RunOptions {
  float scale = 1.0f;  // Backward ops of losses: dlogits is multiplied by it.
};

class DeviceBackend;

class Backend {
 public:
  virtual ~Backend() = default;

  // "reference", "cpu", "cuda".
  virtual std::string Name() const = 0;

  // Of activations, their gradients and weights, as op_check.h names them; the rest is fp32.
  virtual DataType TensorType() const { return DataType::kFloat32; }

  // Whether Prepare would accept `desc`.
  virtual bool Supports(const OpDesc& desc) const = 0;

  // Builds the op.
  // Errors: kInvalidArgument  a field is out of range or shapes do not fit; the message names it.
  //         kUnimplemented    Supports(desc) is false.
  //         kResourceExhausted  no memory for the op's scratch.
  virtual absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) = 0;

  // Enqueues the op on views in the order that op.h gives. Views are fp32 (or TensorType()) unless
  // op.h says int32.
  // REQUIRES: counts are those of the descriptor (checked: kInvalidArgument).
  // Asynchronous on devices; the CPU backends finish before they return.
  virtual absl::Status Run(Plan& plan, absl::Span<const TensorView> inputs,
                           absl::Span<const TensorView> outputs,
                           const RunOptions& options = {}) = 0;

  // Memory of this backend, 64-byte aligned, uninitialised. nullptr if there is none left.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Copies between this backend's memory and the host's, in either direction.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;
  // Waits for everything enqueued; asynchronous faults surface here.
  virtual absl::Status Synchronize() = 0;

  // This backend with what a device can do besides (device_backend.h). Null: memory is the host's,
  // so that any host array may be an operand.
  virtual DeviceBackend* device() { return nullptr; }
};

// Frees through its backend.
struct BackendDeleter {
  Backend* backend = nullptr;
  void operator()(void* memory) const { backend->Free(memory); }
};
using BackendMemory = std::unique_ptr<void, BackendDeleter>;

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_BACKEND_H_
