// Kernels that turn a convolution of stride 2 with few channels into one of stride 1 with more
// channels ("space to depth"): the four pixels of a block become the channels of one pixel.
// Libraries pad channels to eight and compute with the padding, which wastes more than half of the
// work for 3 channels and 7x7 pixels.
//
//   x'[n, i, j, (2 r + t) c + k]      = x[n, 2 i + r - padding, 2 j + t - padding, k]
//   weight'[o, a, b, (2 r + t) c + k] = weight[o, 2 a + r, 2 b + t, k]           r, t in {0, 1}
//
// and 0 where there is no such element. Then y[n, i, j] is the sum over a, b of x'[n, i + a, j + b]
// * weight'[a, b], which is the original result. Traffic: about 2 B per element of x and of x'.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_FOLD_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_OWN_FOLD_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/own/kernel_types.h"

namespace capstan::kernels::cuda {

// The most channels that images x may have.
inline constexpr int kFoldedChannelsMax = 4;

// The number of channels of x' if x has c: a multiple of 8.
constexpr int FoldedChannels(int c) { return c <= 2 ? 8 : 16; }

struct FoldArgs {
  WindowShape shape;  // Describes the convolution of stride 2; 1 <= c <= kFoldedChannelsMax.
  int out_c = 1;
  int h = 1, w = 1, c = 1, kernel = 1;  // Describe x' and weight'.
};
inline FoldArgs FoldOf(const WindowShape& shape, int out_c) {
  const int kernel = (shape.kernel + 1) / 2;
  return {.shape = shape,
          .out_c = out_c,
          .h = shape.out_h + kernel - 1,
          .w = shape.out_w + kernel - 1,
          .c = FoldedChannels(shape.c),
          .kernel = kernel};
}

// Elements have two bytes. LaunchFoldImages requires that `to` is aligned to 16 bytes.
cudaError_t LaunchFoldImages(const FoldArgs& args, const uint16_t* x, uint16_t* to,
                             cudaStream_t stream);
cudaError_t LaunchFoldWeights(const FoldArgs& args, const uint16_t* weight, uint16_t* to,
                              cudaStream_t stream);
// Computes the gradient of weight from the gradient of weight'.
cudaError_t LaunchUnfoldWeights(const FoldArgs& args, const float* folded, float* dweight,
                                cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_FOLD_KERNELS_H_
