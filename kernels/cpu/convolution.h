// Convolution as matrix products over register tiles, straight from NHWC images: no im2col, no
// reorder of activations. Weights are packed at each run (they change at each iteration, and are
// small).
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CPU_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// REQUIRES: signature is of a convolution op. Errors: kResourceExhausted  no memory for scratch.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeConvolutionPlan(const OpSignature& signature,
                                                             const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CONVOLUTION_H_
