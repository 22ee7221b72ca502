// Fully connected ops by cuBLASLt, with bias and bias gradient in its epilogue where it can, and
// by own kernels where it cannot; ReLU by an own kernel, so that NaN passes through.
//
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_KERNELS_CUDA_FULLY_CONNECTED_H_
#define CAPSTAN_KERNELS_CUDA_FULLY_CONNECTED_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/matrix_product.h"

namespace capstan::kernels::cuda {

class FullyConnectedPlanner {
 public:
  explicit FullyConnectedPlanner(Device& device) : device_(device) {}  // Outlives it and plans.

  // REQUIRES: desc.n > 0. The product that was chosen for a descriptor is kept, up to kChosenMax.
  // Errors: kResourceExhausted  no memory for the workspace; kUnimplemented and others of cuBLASLt.
  absl::StatusOr<std::unique_ptr<CudaPlan>> Prepare(const OpSignature& signature);

 private:
  static constexpr size_t kChosenMax = 4096;

  Device& device_;
  std::map<OpDesc, std::shared_ptr<MatrixProduct>> chosen_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_FULLY_CONNECTED_H_
