// Turns convolutions of stride 2 into convolutions of stride 1; fold_kernels.h has the maths and
// shapes.
#include "kernels/cuda/own/fold_kernels.h"
#include "kernels/cuda/own/launch.cuh"
#include "kernels/cuda/own/window.cuh"

namespace capstan::kernels::cuda {
namespace {

// Writes one position of x'; x has C channels.
template <int C>
struct FoldImage {
  static constexpr int kChannels = FoldedChannels(C);
  FoldArgs a;
  const uint16_t* x;
  uint16_t* to;
  __device__ void operator()(int i) const {
    const WindowShape& s = a.shape;
    const Place p = PlaceOf(i, a.h, a.w, 1);
    uint16_t values[kChannels] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 2 * p.row + r - s.padding;
      const int column = 2 * p.column - s.padding;
      const uint16_t* const from = x + ((int64_t{p.n} * s.h + row) * s.w + column) * C;
#pragma unroll
      for (int k = 0; k < 2 * C; ++k) {
        const int at = column + k / C;
        if (row >= 0 && row < s.h && at >= 0 && at < s.w) values[2 * C * r + k] = from[k];
      }
    }
#pragma unroll
    for (int k = 0; k < kChannels; k += 8) {
      uint4 packed;
      memcpy(&packed, values + k, sizeof(packed));
      *reinterpret_cast<uint4*>(to + int64_t{i} * kChannels + k) = packed;
    }
  }
};

// The index in weight' of element (o, row, column, k) of weight.
__device__ __forceinline__ int FoldedAt(const FoldArgs& a, const Place& p) {
  const int block = (p.n * a.kernel + p.row / 2) * a.kernel + p.column / 2;
  return block * a.c + (p.row % 2 * 2 + p.column % 2) * a.shape.c + p.channel;
}

struct UnfoldWeight {
  FoldArgs a;
  const float* folded;
  float* dweight;
  __device__ void operator()(int i) const {
    const WindowShape& s = a.shape;
    dweight[i] = folded[FoldedAt(a, PlaceOf(i, s.kernel, s.kernel, s.c))];
  }
};

// Writes element i of weight'.
struct FoldWeight {
  FoldArgs a;
  const uint16_t* weight;
  uint16_t* to;
  __device__ void operator()(int i) const {
    const WindowShape& s = a.shape;
    const Place p = PlaceOf(i, a.kernel, a.kernel, a.c);
    const int pixel = p.channel / s.c;  // A block has pixels 0 to 3.
    const int row = 2 * p.row + pixel / 2, column = 2 * p.column + pixel % 2;
    const bool is_there = pixel < 4 && row < s.kernel && column < s.kernel;
    const int at = ((p.n * s.kernel + row) * s.kernel + column) * s.c + p.channel % s.c;
    to[i] = is_there ? weight[at] : uint16_t{0};
  }
};

template <int C>
cudaError_t FoldImagesOf(const FoldArgs& a, const uint16_t* x, uint16_t* to, cudaStream_t stream) {
  return Each(FoldImage<C>{a, x, to}, a.shape.n * a.h * a.w, stream);
}

}  // namespace

cudaError_t LaunchFoldImages(const FoldArgs& a, const uint16_t* x, uint16_t* to,
                             cudaStream_t stream) {
  switch (a.shape.c) {
    case 1:
      return FoldImagesOf<1>(a, x, to, stream);
    case 2:
      return FoldImagesOf<2>(a, x, to, stream);
    case 3:
      return FoldImagesOf<3>(a, x, to, stream);
    case 4:
      return FoldImagesOf<4>(a, x, to, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchFoldWeights(const FoldArgs& a, const uint16_t* weight, uint16_t* to,
                              cudaStream_t stream) {
  return Each(FoldWeight{a, weight, to}, int64_t{a.out_c} * a.kernel * a.kernel * a.c, stream);
}

cudaError_t LaunchUnfoldWeights(const FoldArgs& a, const float* folded, float* dweight,
                                cudaStream_t stream) {
  const WindowShape& s = a.shape;
  return Each(UnfoldWeight{a, folded, dweight}, int64_t{a.out_c} * s.kernel * s.kernel * s.c,
              stream);
}

}  // namespace capstan::kernels::cuda
