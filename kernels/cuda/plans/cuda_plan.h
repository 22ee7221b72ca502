// CudaPlan: the base class of every prepared op of the CUDA backend, with the functions that plans
// share. CudaBackend::Run calls Execute.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_CUDA_PLAN_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_CUDA_PLAN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/own/kernel_types.h"
#include "kernels/cuda/plans/device.h"
#include "kernels/op.h"
#include "kernels/op_check.h"

namespace capstan::kernels::cuda {

using Views = absl::Span<const TensorView>;

// The libraries' plans require operands at addresses that are multiples of this.
inline constexpr int64_t kAlignmentBytes = 16;
// Rounds up to a multiple of 256, at which parts of the workspace begin.
constexpr int64_t RoundUp(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The largest workspace of plans that have no smaller one to fall back on when the card is full.
inline constexpr int64_t kSureWorkspaceBytesMax = int64_t{1} << 30;

// The type of tensors in this mode.
constexpr Element ElementOf(Compute compute) {
  return compute == Compute::kBf16   ? Element::kBf16
         : compute == Compute::kFp16 ? Element::kFp16
                                     : Element::kFloat;
}

// The shapes of op.h as kernels take them.
// REQUIRES: desc passed MakeSignature, so that its sizes fit 31 bits.
inline WindowShape WindowShapeOf(const OpDesc& d) {
  return {.n = d.n,
          .h = static_cast<int>(d.h),
          .w = static_cast<int>(d.w),
          .c = static_cast<int>(d.c),
          .out_h = static_cast<int>(d.out_h),
          .out_w = static_cast<int>(d.out_w),
          .kernel = static_cast<int>(d.kernel),
          .stride = static_cast<int>(d.stride),
          .padding = static_cast<int>(d.padding)};
}

class CudaPlan : public Plan {
 public:
  // `signature` has the backend's tensor type (WithTensorType). The device outlives the plan.
  CudaPlan(const OpSignature& signature, Device& device) : signature_(signature), device_(device) {}

  const OpSignature& signature() const { return signature_; }

  // Enqueues the op. REQUIRES: CheckViews(signature(), in, out) passed; the device is entered.
  // Errors: kInvalidArgument  an operand that must be aligned is not; those of the libraries.
  virtual absl::Status Execute(Views in, Views out, const RunOptions& options) = 0;

 protected:
  const OpDesc& desc() const { return signature_.desc; }
  Device& device() const { return device_; }
  cudaStream_t stream() const { return device_.stream(); }
  Element element() const { return ElementOf(device_.options().compute); }
  void* Workspace(int64_t offset) const { return static_cast<char*>(device_.workspace()) + offset; }
  // FromCuda with the op's name in the message.
  absl::Status Launched(cudaError_t error) const;

  // Refuses a view whose address is no multiple of kAlignmentBytes; `name` as in op.h.
  absl::Status CheckAligned(const TensorView& view, const char* name) const;
  // Returns an aligned address of an input: its own if that is aligned, else that of a copy, which
  // it enqueues, in the workspace at `offset`.
  absl::StatusOr<void*> AlignedInput(const TensorView& view, int64_t offset) const;

 private:
  const OpSignature signature_;
  Device& device_;
};

inline bool IsAligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(kAlignmentBytes) == 0;
}

inline int64_t BytesOf(const TensorView& view) { return view.count * kernels::BytesOf(view.dtype); }
inline int64_t BytesOf(const Operand& operand) {
  return operand.count * kernels::BytesOf(operand.dtype);
}

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_CUDA_PLAN_H_
