// Sums over positions and batch norm; image_kernels.h has the maths, shapes and bytes of each.
//
// A block is kColumns channels wide and kLines positions deep and walks down a chunk of positions;
// the chunks' sums are added by one block a strip of channels. Chunks depend on the shape alone.
#include "kernels/cuda/image_kernels.h"
#include "kernels/cuda/launch.cuh"

namespace capstan::kernels::cuda {
namespace {

constexpr int kColumns = 32;
constexpr int kLines = 8;
constexpr int64_t kChunkRowsMin = 512;
constexpr int64_t kChunksMax = 512;  // What one block adds up in little time.
constexpr int kAddLines = 16;

struct Geometry {
  int64_t rows;
  int c;
  int64_t chunk_rows;
};

Geometry GeometryOf(int64_t rows, int c) {
  const int64_t spread = CeilDiv(rows, kChunksMax);
  return {rows, c, spread > kChunkRowsMin ? spread : kChunkRowsMin};
}
dim3 GridOf(const Geometry& g) {
  return dim3(static_cast<unsigned>(CeilDiv(g.c, kColumns)),
              static_cast<unsigned>(CeilDiv(g.rows, g.chunk_rows)));
}

struct Pair {
  float a, b;
};

// partial[chunk, column] = sums over the chunk of values(row, column).
template <class Values>
__global__ void __launch_bounds__(kColumns* kLines)
    ChunkSumsKernel(Values values, Geometry g, double2* partial) {
  __shared__ double2 lines[kLines][kColumns];
  const int column = blockIdx.x * kColumns + threadIdx.x;
  const int64_t begin = blockIdx.y * g.chunk_rows;
  const int64_t end = begin + g.chunk_rows < g.rows ? begin + g.chunk_rows : g.rows;
  float a = 0.0f;
  float b = 0.0f;
  if (column < g.c) {
    const auto of_column = values.OfColumn(column);
    for (int64_t row = begin + threadIdx.y; row < end; row += kLines) {
      const Pair pair = of_column(row * g.c + column);
      a += pair.a;
      b += pair.b;
    }
  }
  lines[threadIdx.y][threadIdx.x] = make_double2(a, b);
  __syncthreads();
  if (threadIdx.y != 0 || column >= g.c) return;
  double2 sum = make_double2(0.0, 0.0);
  for (int line = 0; line < kLines; ++line) {
    sum.x += lines[line][threadIdx.x].x;
    sum.y += lines[line][threadIdx.x].y;
  }
  partial[int64_t{blockIdx.y} * g.c + column] = sum;
}

// finish(column, sums over all chunks).
template <class Finish>
__global__ void __launch_bounds__(kColumns* kAddLines)
    AddChunksKernel(Finish finish, int64_t chunks, int c, const double2* partial) {
  __shared__ double2 lines[kAddLines][kColumns];
  const int column = blockIdx.x * kColumns + threadIdx.x;
  double2 sum = make_double2(0.0, 0.0);
  if (column < c) {
    for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += kAddLines) {
      const double2 one = partial[chunk * c + column];
      sum.x += one.x;
      sum.y += one.y;
    }
  }
  lines[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= c) return;
  sum = make_double2(0.0, 0.0);
  for (int line = 0; line < kAddLines; ++line) {
    sum.x += lines[line][threadIdx.x].x;
    sum.y += lines[line][threadIdx.x].y;
  }
  finish(column, sum);
}

// map(element) for all elements, with what a column needs computed once a thread.
template <class ColumnMap>
__global__ void __launch_bounds__(kColumns* kLines) ColumnMapKernel(ColumnMap map, Geometry g) {
  const int column = blockIdx.x * kColumns + threadIdx.x;
  if (column >= g.c) return;
  const int64_t begin = blockIdx.y * g.chunk_rows;
  const int64_t end = begin + g.chunk_rows < g.rows ? begin + g.chunk_rows : g.rows;
  const auto of_column = map.OfColumn(column);
  for (int64_t row = begin + threadIdx.y; row < end; row += kLines) {
    of_column(row * g.c + column);
  }
}

template <class Values, class Finish>
cudaError_t Sum(const Values& values, const Finish& finish, const Geometry& g, void* scratch,
                cudaStream_t stream) {
  auto* const partial = static_cast<double2*>(scratch);
  const dim3 grid = GridOf(g);
  ChunkSumsKernel<<<grid, dim3(kColumns, kLines), 0, stream>>>(values, g, partial);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  AddChunksKernel<<<grid.x, dim3(kColumns, kAddLines), 0, stream>>>(finish, int64_t{grid.y}, g.c,
                                                                    partial);
  return cudaGetLastError();
}

template <class ColumnMap>
cudaError_t MapColumns(const ColumnMap& map, const Geometry& g, cudaStream_t stream) {
  ColumnMapKernel<<<GridOf(g), dim3(kColumns, kLines), 0, stream>>>(map, g);
  return cudaGetLastError();
}

__device__ __forceinline__ float Inverse(float variance, float epsilon) {
  return 1.0f / sqrtf(variance + epsilon);
}

// ---------------------------------------------------------------- bias gradient

template <typename T>
struct GradientValues {
  const T* dy;
  struct Column {
    const T* dy;
    __device__ Pair operator()(int64_t i) const { return {Load(dy + i), 0.0f}; }
  };
  __device__ Column OfColumn(int) const { return {dy}; }
};
struct StoreSums {
  float* sums;
  __device__ void operator()(int column, double2 sum) const {
    sums[column] = static_cast<float>(sum.x);
  }
};

template <typename T>
cudaError_t ColumnSumsOf(const ColumnSumsArgs& a, cudaStream_t stream) {
  return Sum(GradientValues<T>{static_cast<const T*>(a.dy)}, StoreSums{a.sums},
             GeometryOf(a.rows, a.c), a.scratch, stream);
}

// ---------------------------------------------------------------- batch norm

// Deviations from x[0] of the channel, and their squares: no cancellation, whatever the mean.
template <typename T>
struct DeviationValues {
  const T* x;
  struct Column {
    const T* x;
    float pivot;
    __device__ Pair operator()(int64_t i) const {
      const float deviation = Load(x + i) - pivot;
      return {deviation, deviation * deviation};
    }
  };
  __device__ Column OfColumn(int column) const { return {x, Load(x + column)}; }
};
template <typename T>
struct StoreMoments {
  const T* x;
  double rows;
  float* mean;
  float* variance;
  __device__ void operator()(int column, double2 sum) const {
    const double shift = sum.x / rows;
    const double spread = sum.y / rows - shift * shift;
    mean[column] = static_cast<float>(static_cast<double>(Load(x + column)) + shift);
    variance[column] = static_cast<float>(spread < 0.0 ? 0.0 : spread);  // NaN stays.
  }
};

template <typename T>
struct Normalise {
  BatchNormArgs a;
  struct Column {
    const T* x;
    T* y;
    float mean, inverse, scale, shift;
    __device__ void operator()(int64_t i) const {
      Store(y + i, (Load(x + i) - mean) * inverse * scale + shift);
    }
  };
  __device__ Column OfColumn(int j) const {
    return {static_cast<const T*>(a.x),
            static_cast<T*>(a.out),
            a.mean[j],
            Inverse(a.variance[j], a.epsilon),
            a.scale[j],
            a.shift[j]};
  }
};

// dy, and dy * normal.
template <typename T>
struct BackwardValues {
  BatchNormArgs a;
  struct Column {
    const T* x;
    const T* dy;
    float mean, inverse;
    __device__ Pair operator()(int64_t i) const {
      const float g = Load(dy + i);
      return {g, g * ((Load(x + i) - mean) * inverse)};
    }
  };
  __device__ Column OfColumn(int j) const {
    return {static_cast<const T*>(a.x), static_cast<const T*>(a.dy), a.mean[j],
            Inverse(a.variance[j], a.epsilon)};
  }
};
struct StoreGradients {
  float* dscale;
  float* dshift;
  __device__ void operator()(int column, double2 sum) const {
    dshift[column] = static_cast<float>(sum.x);
    dscale[column] = static_cast<float>(sum.y);
  }
};

template <typename T>
struct BackwardMap {
  BatchNormArgs a;
  struct Column {
    const T* x;
    const T* dy;
    T* dx;
    float mean, inverse, factor, mean_dy, mean_dy_normal;
    __device__ void operator()(int64_t i) const {
      const float normal = (Load(x + i) - mean) * inverse;
      Store(dx + i, factor * (Load(dy + i) - mean_dy - normal * mean_dy_normal));
    }
  };
  __device__ Column OfColumn(int j) const {
    const float inverse = Inverse(a.variance[j], a.epsilon);
    const auto rows = static_cast<float>(a.rows);
    return {static_cast<const T*>(a.x),
            static_cast<const T*>(a.dy),
            static_cast<T*>(a.out),
            a.mean[j],
            inverse,
            a.scale[j] * inverse,
            a.dshift[j] / rows,
            a.dscale[j] / rows};
  }
};

template <typename T>
cudaError_t InferenceOf(const BatchNormArgs& a, cudaStream_t stream) {
  return MapColumns(Normalise<T>{a}, GeometryOf(a.rows, a.c), stream);
}

template <typename T>
cudaError_t ForwardOf(const BatchNormArgs& a, cudaStream_t stream) {
  const auto* const x = static_cast<const T*>(a.x);
  const StoreMoments<T> finish{x, static_cast<double>(a.rows), a.mean, a.variance};
  const cudaError_t error =
      Sum(DeviationValues<T>{x}, finish, GeometryOf(a.rows, a.c), a.scratch, stream);
  return error != cudaSuccess ? error : InferenceOf<T>(a, stream);
}

template <typename T>
cudaError_t BackwardOf(const BatchNormArgs& a, cudaStream_t stream) {
  const Geometry g = GeometryOf(a.rows, a.c);
  const cudaError_t error =
      Sum(BackwardValues<T>{a}, StoreGradients{a.dscale, a.dshift}, g, a.scratch, stream);
  return error != cudaSuccess ? error : MapColumns(BackwardMap<T>{a}, g, stream);
}

}  // namespace

int64_t ColumnSumsScratchBytes(int64_t rows, int c) {
  return int64_t{GridOf(GeometryOf(rows, c)).y} * c * static_cast<int64_t>(sizeof(double2));
}

cudaError_t LaunchColumnSums(const ColumnSumsArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return ColumnSumsOf<decltype(t)>(args, stream); });
}
cudaError_t LaunchBatchNormForward(const BatchNormArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return ForwardOf<decltype(t)>(args, stream); });
}
cudaError_t LaunchBatchNormInference(const BatchNormArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return InferenceOf<decltype(t)>(args, stream); });
}
cudaError_t LaunchBatchNormBackward(const BatchNormArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return BackwardOf<decltype(t)>(args, stream); });
}

}  // namespace capstan::kernels::cuda
