// Convolution by Winograd's algorithms F(2x2, 3x3) and F(2x2, 5x5), for windows of these sizes and
// stride 1: 16 multiplications for four outputs instead of 36, or 36 instead of 100 (Lavin and
// Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, section 4.1).
//
// An output image is cut into tiles of 2x2. With the matrices of simd/winograd.inc, for each tile,
//   forward           y  = O [ sum over c of (W w W^T) * (I x I^T) ] O^T
//   backward data     3x3: forward on dy, with the window turned by 180 degrees
//                     5x5: dx += I^T [ sum over filters of (W w W^T) * (O^T dy O) ] I
//   backward weights  dw = W^T [ sum over tiles of (O^T dy O) * (I x I^T) ] W
// where x are the pixels that the tile's windows cover, and * multiplies the elements, called
// points. Each point is a matrix product of its own, by the register tiles of Simd.
//
// The matrices for 3x3 hold only 0, 1, -1 and 1/2, and results are as accurate as those of the
// plain sum. With those for 5x5 errors are about three times as large, and too large for backward
// weights, which remains with convolution.h.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_WINOGRAD_H_
#define CAPSTAN_KERNELS_CPU_WINOGRAD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// True if the backend should use Winograd's algorithm for `desc`. The answer depends on the
// descriptor alone.
bool PrefersWinograd(const OpDesc& desc);

// REQUIRES: the signature is that of a convolution op, and PrefersWinograd.
// Errors: kResourceExhausted  not enough memory for scratch.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeWinogradPlan(const OpSignature& signature,
                                                          const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_WINOGRAD_H_
