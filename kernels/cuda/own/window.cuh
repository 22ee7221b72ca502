// Windows over images, in device code: the positions that a window holds, and the windows that hold
// a position.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_WINDOW_CUH_
#define CAPSTAN_KERNELS_CUDA_OWN_WINDOW_CUH_

#include <cstdint>

#include "kernels/cuda/own/kernel_types.h"
#include "kernels/cuda/own/launch.cuh"

namespace capstan::kernels::cuda {

// A part of an axis: [begin, end).
struct AxisRange {
  int begin;
  int end;
};

// The input positions of output `o` along an axis of `size`.
__device__ __forceinline__ AxisRange WindowOf(int o, const WindowShape& s, int size) {
  const int first = o * s.stride - s.padding;
  const int last = first + s.kernel;
  return {first < 0 ? 0 : first, last > size ? size : last};
}

// The outputs along an axis of `out_size` whose windows hold input `i`.
__device__ __forceinline__ AxisRange WindowsAt(int i, const WindowShape& s, int out_size) {
  const int reach = i + s.padding - s.kernel + 1;  // The first window may begin here.
  const int begin = reach <= 0 ? 0 : (reach + s.stride - 1) / s.stride;
  const int last = (i + s.padding) / s.stride + 1;
  return {begin, last > out_size ? out_size : last};
}

// The coordinates of element i = ((n * h + row) * w + column) * c + channel. Counts fit 31 bits.
struct Place {
  int channel;
  int column;
  int row;
  int n;
};
__device__ __forceinline__ Place PlaceOf(int i, int h, int w, int c) {
  Place p;
  p.channel = i % c;
  i /= c;
  p.column = i % w;
  i /= w;
  p.row = i % h;
  p.n = i / h;
  return p;
}

// Calls op(i) for i in [0, n).
template <class Op>
__global__ void __launch_bounds__(kBlockThreads) EachKernel(Op op, int64_t n) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < n; i += stride) {
    op(static_cast<int>(i));
  }
}
template <class Op>
cudaError_t Each(const Op& op, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  Launch(EachKernel<Op>, BlocksFor(n, kBlockThreads), kBlockThreads, stream, op, n);
  return cudaGetLastError();
}

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_WINDOW_CUH_
