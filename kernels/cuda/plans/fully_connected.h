// FullyConnectedPlanner: prepares fully connected ops for the CUDA backend. cuBLASLt computes them,
// with bias and bias gradient in its epilogue if it can; otherwise own kernels compute these. ReLU
// is always an own kernel, so that NaN passes through.
//
// Thread safety: one thread at a time uses it.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_FULLY_CONNECTED_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_FULLY_CONNECTED_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/plans/cuda_plan.h"
#include "kernels/cuda/plans/matrix_product.h"

namespace capstan::kernels::cuda {

class FullyConnectedPlanner {
 public:
  // `device` outlives the planner and its plans.
  explicit FullyConnectedPlanner(Device& device) : device_(device) {}

  // Prepares a fully connected op. Remembers the product that it chose for a descriptor, for up to
  // kChosenMax descriptors. REQUIRES: desc.n > 0.
  // Errors: kResourceExhausted  not enough memory for the workspace.
  //         else                kUnimplemented and others of cuBLASLt.
  absl::StatusOr<std::unique_ptr<CudaPlan>> Prepare(const OpSignature& signature);

 private:
  static constexpr size_t kChosenMax = 4096;

  Device& device_;
  std::map<OpDesc, std::shared_ptr<MatrixProduct>> chosen_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_FULLY_CONNECTED_H_
