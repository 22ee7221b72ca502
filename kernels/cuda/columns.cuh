// Matrices [rows, c] walked down their columns: sums over rows, and maps with what a column needs.
//
// A thread works on N channels side by side, 4 where they may be read at once. A block is as many
// threads wide as the channels need, at most kColumnsMax, has kBlockThreads in all, and walks down
// a chunk of rows; the last block of a strip of channels adds up the chunks' sums. Chunks depend
// on the shape alone, and on whether four may be read at once.
//
//   Values, Map: OfColumns(first channel, [sums]) is what a thread keeps while it walks; of that,
//                Read(i) reads the N elements from i on, and Use(i, those) does the rest.
//   Finish:      operator()(channel, sums over all rows)
#ifndef CAPSTAN_KERNELS_CUDA_COLUMNS_CUH_
#define CAPSTAN_KERNELS_CUDA_COLUMNS_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace capstan::kernels::cuda {

inline constexpr int kColumnsMax = 32;
inline constexpr int kBlocksWanted = 528;  // As an H100 runs at once: 132 times 4.
inline constexpr int64_t kChunkRowsMin = 128;
static_assert(kBlocksWanted <= kStripsMax, "with more strips there is one chunk");

// How a matrix is divided among threads and blocks.
struct ColumnGeometry {
  int64_t rows;
  int c;
  int channels;  // Of a thread.
  int columns;   // Threads side by side: a power of two.
  int64_t chunk_rows;

  int lines() const { return kBlockThreads / columns; }
  int64_t strips() const { return CeilDiv(c, int64_t{columns} * channels); }
  int64_t chunks() const { return CeilDiv(rows, chunk_rows); }
  dim3 grid() const {
    return dim3(static_cast<unsigned>(strips()), static_cast<unsigned>(chunks()));
  }
  dim3 block() const {
    return dim3(static_cast<unsigned>(columns), static_cast<unsigned>(lines()));
  }
};

inline ColumnGeometry ColumnGeometryOf(int64_t rows, int c, int channels) {
  ColumnGeometry g{rows, c, channels, 1, 0};
  while (g.columns < kColumnsMax && g.columns * channels < c) g.columns *= 2;
  // A last strip that is mostly empty costs as much as a full one.
  while (g.strips() > 1 && g.strips() * g.columns * channels - c > c / 4) g.columns /= 2;
  const int64_t chunks = CeilDiv(kBlocksWanted, g.strips());
  const int64_t spread = CeilDiv(CeilDiv(rows, chunks), g.lines()) * g.lines();
  g.chunk_rows = spread > kChunkRowsMin ? spread : kChunkRowsMin;
  return g;
}

struct Pair {
  float a, b;
};

// For the channels of one thread, down the rows of its chunk: visit(row's first element). Two rows
// are read before anything of them is written, so that more reads are on their way.
template <class Columns>
__device__ __forceinline__ void WalkChunk(const ColumnGeometry& g, int column,
                                          const Columns& columns) {
  const int64_t begin = blockIdx.y * g.chunk_rows;
  const int64_t end = begin + g.chunk_rows < g.rows ? begin + g.chunk_rows : g.rows;
  const int64_t lines = kBlockThreads / g.columns;
  for (int64_t row = begin + threadIdx.y; row < end; row += 2 * lines) {
    const int64_t first = row * g.c + column;
    const int64_t second = first + lines * g.c;
    const bool both = row + lines < end;
    const auto one = columns.Read(first);
    const auto two = columns.Read(both ? second : first);
    columns.Use(first, one);
    if (both) columns.Use(second, two);
  }
}

// finish(channel, sums over all rows). Each block leaves the sums of its chunk in partial[chunk,
// channel]. The last block of a strip, as strips_done counts them, adds up the strip's, and leaves
// 0 there.
template <int N, class Values, class Finish>
__global__ void __launch_bounds__(kBlockThreads)
    ColumnSumsKernel(Values values, Finish finish, ColumnGeometry g, double2* partial,
                     unsigned* strips_done) {
  __shared__ double2 lines[kBlockThreads * N];  // [line, channel of the strip]
  __shared__ bool is_last;
  const int width = g.columns * N;
  const int strip = static_cast<int>(blockIdx.x) * width;
  const int column = strip + static_cast<int>(threadIdx.x) * N;
  Pair sums[N] = {};
  if (column < g.c) WalkChunk(g, column, values.OfColumns(column, sums));
#pragma unroll
  for (int k = 0; k < N; ++k) {
    lines[threadIdx.y * width + threadIdx.x * N + k] = make_double2(sums[k].a, sums[k].b);
  }
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.y) * g.columns + static_cast<int>(threadIdx.x);
  const bool is_mine = mine < width && strip + mine < g.c;
  if (is_mine) {
    double2 sum = make_double2(0.0, 0.0);
    for (int line = 0; line < kBlockThreads / g.columns; ++line) {
      sum.x += lines[line * width + mine].x;
      sum.y += lines[line * width + mine].y;
    }
    partial[int64_t{blockIdx.y} * g.c + strip + mine] = sum;
  }
  __threadfence();  // The sums are there before the strip's count says so.
  __syncthreads();
  if (mine == 0) {
    is_last = gridDim.y == 1 || atomicAdd(strips_done + blockIdx.x, 1u) == gridDim.y - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  // As many threads as there are add up the chunks of a channel, and then the first one theirs.
  const int threads_of_channel = kBlockThreads / width;
  const int channel = strip + mine % width;
  double2 sum = make_double2(0.0, 0.0);
  if (channel < g.c) {
#pragma unroll 8
    for (int64_t chunk = mine / width; chunk < gridDim.y; chunk += threads_of_channel) {
      const double2 one = __ldcg(partial + chunk * g.c + channel);
      sum.x += one.x;
      sum.y += one.y;
    }
  }
  lines[mine] = sum;
  __syncthreads();
  if (is_mine) {
    for (int other = 1; other < threads_of_channel; ++other) {
      sum.x += lines[other * width + mine].x;
      sum.y += lines[other * width + mine].y;
    }
    finish(channel, sum);
  }
  if (mine == 0 && gridDim.y > 1) strips_done[blockIdx.x] = 0;
}

// map(element) for all elements, with what a channel needs computed once a thread.
template <int N, class Map>
__global__ void __launch_bounds__(kBlockThreads) ColumnMapKernel(Map map, ColumnGeometry g) {
  const int threads = static_cast<int>(blockIdx.x) * g.columns + static_cast<int>(threadIdx.x);
  const int column = threads * N;
  if (column < g.c) WalkChunk(g, column, map.OfColumns(column));
}

//   strips_done  [kStripsMax], all 0
template <int N, class Values, class Finish>
cudaError_t Sum(const Values& values, const Finish& finish, const ColumnGeometry& g, void* scratch,
                unsigned* strips_done, cudaStream_t stream) {
  Launch(ColumnSumsKernel<N, Values, Finish>, g.grid(), g.block(), stream, values, finish, g,
         static_cast<double2*>(scratch), strips_done);
  return cudaGetLastError();
}

template <int N, class Map>
cudaError_t MapColumns(const Map& map, const ColumnGeometry& g, cudaStream_t stream) {
  Launch(ColumnMapKernel<N, Map>, g.grid(), g.block(), stream, map, g);
  return cudaGetLastError();
}

// N numbers side by side, of elements or of channels.
template <int N>
struct Row {
  float v[N];
};
template <int N, typename T>
__device__ __forceinline__ Row<N> RowAt(const T* p) {
  Row<N> row;
  LoadN<N>(p, row.v);
  return row;
}
template <int N>
__device__ __forceinline__ Row<N> ChannelsAt(const float* p, int column) {
  Row<N> row;
#pragma unroll
  for (int k = 0; k < N; ++k) row.v[k] = p[column + k];
  return row;
}

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_COLUMNS_CUH_
