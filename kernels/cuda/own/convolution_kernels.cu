// Convolutions as plain loops; convolution_kernels.h has the maths and shapes.
#include "kernels/cuda/own/convolution_kernels.h"
#include "kernels/cuda/own/launch.cuh"
#include "kernels/cuda/own/window.cuh"

namespace capstan::kernels::cuda {
namespace {

template <typename T>
struct Operands {
  WindowShape s;
  int out_c;
  T* x;
  T* weight;
  T* y;

  __device__ int XAt(int n, int h, int w) const { return ((n * s.h + h) * s.w + w) * s.c; }
  __device__ int YAt(int n, int h, int w) const {
    return ((n * s.out_h + h) * s.out_w + w) * out_c;
  }
  // The index of the first channel of filter `o` at input row h, column w, in the window of output
  // row oh, column ow.
  __device__ int WeightAt(int o, int h, int w, int oh, int ow) const {
    const int row = h + s.padding - oh * s.stride;
    const int column = w + s.padding - ow * s.stride;
    return ((o * s.kernel + row) * s.kernel + column) * s.c;
  }
};

template <typename T>
struct Forward {
  Operands<T> v;
  __device__ void operator()(int i) const {
    const WindowShape& s = v.s;
    const Place p = PlaceOf(i, s.out_h, s.out_w, v.out_c);
    const AxisRange rows = WindowOf(p.row, s, s.h);
    const AxisRange columns = WindowOf(p.column, s, s.w);
    float sum = 0.0f;
    for (int h = rows.begin; h < rows.end; ++h) {
      for (int w = columns.begin; w < columns.end; ++w) {
        const T* const x = v.x + v.XAt(p.n, h, w);
        const T* const weight = v.weight + v.WeightAt(p.channel, h, w, p.row, p.column);
        for (int c = 0; c < s.c; ++c) sum = fmaf(Load(x + c), Load(weight + c), sum);
      }
    }
    Store(v.y + i, sum);
  }
};

template <typename T>
struct BackwardData {
  Operands<T> v;
  __device__ void operator()(int i) const {
    const WindowShape& s = v.s;
    const Place p = PlaceOf(i, s.h, s.w, s.c);
    const AxisRange rows = WindowsAt(p.row, s, s.out_h);
    const AxisRange columns = WindowsAt(p.column, s, s.out_w);
    float sum = 0.0f;
    for (int oh = rows.begin; oh < rows.end; ++oh) {
      for (int ow = columns.begin; ow < columns.end; ++ow) {
        const T* const dy = v.y + v.YAt(p.n, oh, ow);
        const T* const weight = v.weight + v.WeightAt(0, p.row, p.column, oh, ow) + p.channel;
        const int filter = s.kernel * s.kernel * s.c;
        for (int o = 0; o < v.out_c; ++o) {
          sum = fmaf(Load(dy + o), Load(weight + o * filter), sum);
        }
      }
    }
    Store(v.x + i, sum);
  }
};

// Block b computes dweight[b]. Its threads take positions in turn; a tree adds their sums.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    BackwardWeightsKernel(Operands<T> v, float* dweight) {
  __shared__ double sums[kBlockThreads];
  const WindowShape& s = v.s;
  const Place p = PlaceOf(static_cast<int>(blockIdx.x), s.kernel, s.kernel, s.c);  // n: the filter.
  const auto positions = static_cast<int>(s.n) * s.out_h * s.out_w;
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < positions; i += kBlockThreads) {
    const Place at = PlaceOf(i, s.out_h, s.out_w, 1);
    const int h = at.row * s.stride - s.padding + p.row;
    const int w = at.column * s.stride - s.padding + p.column;
    if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
    sum += static_cast<double>(Load(v.x + v.XAt(at.n, h, w) + p.channel)) *
           static_cast<double>(Load(v.y + i * v.out_c + p.n));
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kBlockThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) dweight[blockIdx.x] = static_cast<float>(sums[0]);
}

template <typename T>
Operands<T> OperandsOf(const ConvolutionArgs& a) {
  return {a.shape, a.out_c, static_cast<T*>(a.x), static_cast<T*>(a.weight), static_cast<T*>(a.y)};
}

int64_t Inputs(const WindowShape& s) { return s.n * s.h * s.w * s.c; }
int64_t Outputs(const ConvolutionArgs& a) {
  return a.shape.n * a.shape.out_h * a.shape.out_w * a.out_c;
}

template <typename T>
cudaError_t BackwardWeightsOf(const ConvolutionArgs& a, cudaStream_t stream) {
  Operands<T> operands = OperandsOf<T>(a);
  operands.weight = nullptr;
  const int elements = a.out_c * a.shape.kernel * a.shape.kernel * a.shape.c;  // < 2^31.
  Launch(BackwardWeightsKernel<T>, static_cast<unsigned>(elements), kBlockThreads, stream, operands,
         static_cast<float*>(a.weight));
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchConvolutionForward(const ConvolutionArgs& a, cudaStream_t stream) {
  return ForElement(a.type, [&](auto t) {
    return Each(Forward<decltype(t)>{OperandsOf<decltype(t)>(a)}, Outputs(a), stream);
  });
}
cudaError_t LaunchConvolutionBackwardData(const ConvolutionArgs& a, cudaStream_t stream) {
  return ForElement(a.type, [&](auto t) {
    return Each(BackwardData<decltype(t)>{OperandsOf<decltype(t)>(a)}, Inputs(a.shape), stream);
  });
}
cudaError_t LaunchConvolutionBackwardWeights(const ConvolutionArgs& a, cudaStream_t stream) {
  return ForElement(a.type, [&](auto t) { return BackwardWeightsOf<decltype(t)>(a, stream); });
}

}  // namespace capstan::kernels::cuda
