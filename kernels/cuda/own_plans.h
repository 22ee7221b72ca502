// Plans of the ops that own kernels compute: element-wise, pools, batch norm, softmax
// cross-entropy, embeddings; and of an empty batch, of any kind.
//
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_PLANS_H_
#define CAPSTAN_KERNELS_CUDA_OWN_PLANS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_plan.h"

namespace capstan::kernels::cuda {

// REQUIRES: the kind is none of the convolutions and fully connected ops, unless n is 0.
// Errors: kResourceExhausted  no memory for the workspace.
absl::StatusOr<std::unique_ptr<CudaPlan>> MakeOwnPlan(const OpSignature& signature, Device& device);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_PLANS_H_
