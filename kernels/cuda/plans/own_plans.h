// Plans of the ops that Capstan's own kernels compute: element-wise ops, pools, normalisations,
// softmax cross-entropy and embeddings; and the plan of any op with an empty batch.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_OWN_PLANS_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_OWN_PLANS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/plans/cuda_plan.h"

namespace capstan::kernels::cuda {

// REQUIRES: the op is no convolution and not fully connected, unless n is 0.
// Errors: kResourceExhausted  not enough memory for the workspace.
absl::StatusOr<std::unique_ptr<CudaPlan>> MakeOwnPlan(const OpSignature& signature, Device& device);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_OWN_PLANS_H_
