// WindowShapeOf: converts the shapes of op.h to those that kernels take.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_SHAPES_H_
#define CAPSTAN_KERNELS_CUDA_SHAPES_H_

#include "kernels/cuda/kernel_types.h"
#include "kernels/op.h"

namespace capstan::kernels::cuda {

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

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_SHAPES_H_
