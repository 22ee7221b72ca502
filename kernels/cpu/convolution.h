// Convolution for the CPU backend, as matrix products over register tiles. It reads NHWC images
// directly, without im2col or a reorder of activations. Each run packs the weights, which are small
// and change with each iteration.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CPU_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// REQUIRES: the signature is that of a convolution op.
// Errors: kResourceExhausted  not enough memory for scratch.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeConvolutionPlan(const OpSignature& signature,
                                                             const CpuContext& context);

// dbias[filter] = sum of dy over all positions of all images. `scratch` has room for a float per
// filter.
void SumBiasGradient(const Simd& simd, const OpDesc& desc, const float* dy, float* scratch,
                     float* dbias);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CONVOLUTION_H_
