#include "kernels/cuda/plans/cuda_plan.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/plans/status.h"

namespace capstan::kernels::cuda {

absl::Status CudaPlan::Launched(cudaError_t error) const {
  if (error == cudaSuccess) return absl::OkStatus();
  return FromCuda(error, absl::StrCat("launching ", ToString(desc())));
}

absl::Status CudaPlan::CheckAligned(const TensorView& view, const char* name) const {
  if (view.count == 0 || IsAligned(view.data)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToString(desc()), ": ", name, " is at address ",
                                                 absl::Hex(reinterpret_cast<uintptr_t>(view.data)),
                                                 ", expected a multiple of ", kAlignmentBytes));
}

absl::StatusOr<void*> CudaPlan::AlignedInput(const TensorView& view, int64_t offset) const {
  if (IsAligned(view.data)) return view.data;
  void* const copy = Workspace(offset);
  CAPSTAN_CUDA_CHECK(cudaMemcpyAsync(copy, view.data, static_cast<size_t>(BytesOf(view)),
                                     cudaMemcpyDeviceToDevice, stream()),
                     "aligning an operand");
  return copy;
}

}  // namespace capstan::kernels::cuda
