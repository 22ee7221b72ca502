// Layer norm; image_kernels.h has the maths, shapes and bytes.
#include "kernels/cuda/own/columns.cuh"
#include "kernels/cuda/own/image_kernels.h"
#include "kernels/cuda/own/launch.cuh"

namespace capstan::kernels::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) LayerNormForwardKernel(LayerNormArgs a) {
  const int lane = threadIdx.x % kWarp;
  const auto count = static_cast<float>(a.c);
  const int64_t stride = int64_t{gridDim.x} * kRowsOfBlock;
  int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  for (; row < a.rows; row += stride) {
    const T* const x = static_cast<const T*>(a.x) + row * a.c;
    T* const y = static_cast<T*>(a.out) + row * a.c;
    float sum = 0.0f;
    for (int c = lane; c < a.c; c += kWarp) sum += Load(x + c);
    const float mean = WarpSum(sum) / count;
    float squares = 0.0f;
    for (int c = lane; c < a.c; c += kWarp) {
      const float deviation = Load(x + c) - mean;
      squares += deviation * deviation;
    }
    const float variance = WarpSum(squares) / count;
    const float inverse = InverseDeviation(variance, a.epsilon);
    for (int c = lane; c < a.c; c += kWarp) {
      Store(y + c, (Load(x + c) - mean) * inverse * a.scale[c] + a.shift[c]);
    }
    if (lane != 0) continue;
    a.mean[row] = mean;
    a.variance[row] = variance;
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) LayerNormBackwardKernel(LayerNormArgs a) {
  const int lane = threadIdx.x % kWarp;
  const auto count = static_cast<float>(a.c);
  const int64_t stride = int64_t{gridDim.x} * kRowsOfBlock;
  int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  for (; row < a.rows; row += stride) {
    const T* const x = static_cast<const T*>(a.x) + row * a.c;
    const T* const dy = static_cast<const T*>(a.dy) + row * a.c;
    T* const dx = static_cast<T*>(a.out) + row * a.c;
    const float mean = a.mean[row];
    const float inverse = InverseDeviation(a.variance[row], a.epsilon);
    float sum = 0.0f, product = 0.0f;
    for (int c = lane; c < a.c; c += kWarp) {
      const float g = Load(dy + c) * a.scale[c];
      sum += g;
      product += g * ((Load(x + c) - mean) * inverse);
    }
    const float mean_g = WarpSum(sum) / count;
    const float mean_product = WarpSum(product) / count;
    for (int c = lane; c < a.c; c += kWarp) {
      const float normal = (Load(x + c) - mean) * inverse;
      Store(dx + c, inverse * (Load(dy + c) * a.scale[c] - mean_g - normal * mean_product));
    }
  }
}

// Sums dy and dy * normal down the columns.
template <int N, typename T>
struct ParameterValues {
  LayerNormArgs a;
  struct Columns {
    LayerNormArgs a;
    Pair (&sums)[N];
    static constexpr int kOperands = 2;
    struct Values {
      Packed<N, T> x, dy;
    };
    __device__ Values Read(int64_t i) const {
      return {PackedAt<N>(static_cast<const T*>(a.x) + i),
              PackedAt<N>(static_cast<const T*>(a.dy) + i)};
    }
    __device__ void Use(int64_t i, const Values& in) const {
      const int64_t row = i / a.c;
      const float mean = a.mean[row];
      const float inverse = InverseDeviation(a.variance[row], a.epsilon);
      const Row<N> x = RowOf(in.x), dy = RowOf(in.dy);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[k].a += dy.v[k];
        sums[k].b += dy.v[k] * ((x.v[k] - mean) * inverse);
      }
    }
  };
  __device__ Columns OfColumns(int, Pair (&sums)[N]) const { return {a, sums}; }
};
struct StoreParameters {
  float* dscale;
  float* dshift;
  __device__ void operator()(int column, double2 sum) const {
    dshift[column] = static_cast<float>(sum.x);
    dscale[column] = static_cast<float>(sum.y);
  }
};

template <int N, typename T>
cudaError_t SumParameters(const LayerNormArgs& a, cudaStream_t stream) {
  return Sum<N>(ParameterValues<N, T>{a}, StoreParameters{a.dscale, a.dshift},
                ColumnGeometryOf(a.rows, a.c, N), a.scratch, a.strips_done, stream);
}

template <typename T>
cudaError_t BackwardOf(const LayerNormArgs& a, cudaStream_t stream) {
  constexpr int kWide = kWidest<T>;
  const bool wide = a.c % kWide == 0 && IsAligned<kWide>(static_cast<const T*>(a.x)) &&
                    IsAligned<kWide>(static_cast<const T*>(a.dy));
  const cudaError_t error =
      wide ? SumParameters<kWide, T>(a, stream) : SumParameters<1, T>(a, stream);
  if (error != cudaSuccess) return error;
  Launch(LayerNormBackwardKernel<T>, BlocksFor(a.rows, kRowsOfBlock), kBlockThreads, stream, a);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchLayerNormForward(const LayerNormArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) {
    Launch(LayerNormForwardKernel<decltype(t)>, BlocksFor(args.rows, kRowsOfBlock), kBlockThreads,
           stream, args);
    return cudaGetLastError();
  });
}

cudaError_t LaunchLayerNormBackward(const LayerNormArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return BackwardOf<decltype(t)>(args, stream); });
}

}  // namespace capstan::kernels::cuda
