// Kernels that go down the columns of matrices [rows, c]: sums over rows, and maps with constants
// per column.
//
// A thread handles N neighbouring channels, 16 bytes of them if they may be read at once. A block
// has kBlockThreads threads, is as many threads wide as a strip of channels needs, and goes down a
// chunk of rows; the last block of a strip adds the chunks' sums. The chunks depend only on the
// shape and on N. A card is busy while about 30 KB are on their way to each multiprocessor, so a
// thread loads several rows before it uses the first.
//
//   Values, Map: OfColumns(first channel, [sums]) makes the object that a thread keeps while it
//                goes down. Its Read(i) loads the N elements from i on, unconverted; Use(i, read)
//                does the rest; kOperands is the number of matrices that Read reads.
//   Finish:      operator()(channel, sums over all rows)
#ifndef CAPSTAN_KERNELS_CUDA_OWN_COLUMNS_CUH_
#define CAPSTAN_KERNELS_CUDA_OWN_COLUMNS_CUH_

#include <cstdint>

#include "kernels/cuda/own/launch.cuh"

namespace capstan::kernels::cuda {

inline constexpr int kStripChannels = 64;  // Narrow strips leave fewer chunks to add.
inline constexpr int kBlocksOfCard = 2;    // Per multiprocessor: 128 registers for each thread.
inline constexpr int kBlocksWanted = 132 * kBlocksOfCard;  // The most that an H100 runs at once.
inline constexpr int64_t kChunkRowsMin = 128;
static_assert(kBlocksWanted <= kStripsMax, "with more strips there is one chunk");

// How a matrix is divided among threads and blocks.
struct ColumnGeometry {
  int64_t rows;
  int c;
  int channels;  // Channels per thread: a power of two.
  int columns;   // Threads across a block: a power of two.
  int64_t chunk_rows;

  int lines() const { return kBlockThreads / columns; }
  int64_t strips() const { return CeilDiv(c, int64_t{columns} * channels); }
  int64_t chunks() const { return CeilDiv(rows, chunk_rows); }
  // The number of partial sums: one for each channel of all strips and each chunk.
  int64_t sums() const { return chunks() * strips() * columns * channels; }
  dim3 grid() const {
    return dim3(static_cast<unsigned>(strips()), static_cast<unsigned>(chunks()));
  }
  dim3 block() const {
    return dim3(static_cast<unsigned>(columns), static_cast<unsigned>(lines()));
  }
};

inline ColumnGeometry ColumnGeometryOf(int64_t rows, int c, int channels) {
  ColumnGeometry g{rows, c, channels, 1, 0};
  const int columns_max = channels == 1 ? 32 : kStripChannels / channels;
  while (g.columns < columns_max && g.columns * channels < c) g.columns *= 2;
  // A last strip that is mostly empty costs as much as a full one.
  while (g.strips() > 1 && g.strips() * g.columns * channels - c > c / 4) g.columns /= 2;
  const int64_t strips = g.strips();
  const int64_t chunks = strips < kBlocksWanted ? kBlocksWanted / strips : 1;
  const int64_t spread = CeilDiv(CeilDiv(rows, chunks), g.lines()) * g.lines();
  g.chunk_rows = spread > kChunkRowsMin ? spread : kChunkRowsMin;
  return g;
}

struct Pair {
  float a, b;
};

// Goes down the rows of a chunk with the channels of one thread. Loads kRows rows, about 128 bytes,
// before it uses the first.
template <class Columns>
__device__ __forceinline__ void WalkChunk(const ColumnGeometry& g, int column,
                                          const Columns& columns) {
  constexpr int kRows = Columns::kOperands == 3 ? 3 : 8 / Columns::kOperands;
  const int64_t begin = blockIdx.y * g.chunk_rows;
  const int64_t end = begin + g.chunk_rows < g.rows ? begin + g.chunk_rows : g.rows;
  const int64_t lines = kBlockThreads / g.columns;
  const int64_t step = lines * g.c;
  for (int64_t row = begin + threadIdx.y; row < end; row += kRows * lines) {
    const int64_t first = row * g.c + column;
    const int64_t left = (end - row + lines - 1) / lines;  // This thread's rows.
    decltype(columns.Read(first)) read[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) read[r] = columns.Read(r < left ? first + r * step : first);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r < left) columns.Use(first + r * step, read[r]);
    }
  }
}

// Adds at(0, slot), ..., at(count - 1, slot) for each of `width` slots, with kBlockThreads / width
// threads per slot. Thread `mine` of the block, if below width, returns the sum of slot `mine`.
// Overwrites sums[kBlockThreads].
template <class At>
__device__ __forceinline__ double2 AddUp(int mine, int count, int width, const At& at,
                                         double2* sums) {
  double2 sum = make_double2(0.0, 0.0);
#pragma unroll 16
  for (int i = mine / width; i < count; i += kBlockThreads / width) {
    const double2 one = at(i, mine % width);
    sum.x += one.x;
    sum.y += one.y;
  }
  __syncthreads();  // `at` may read from `sums`.
  sums[mine] = sum;
  __syncthreads();
  if (mine < width) {
    for (int other = mine + width; other < kBlockThreads; other += width) {
      sum.x += sums[other].x;
      sum.y += sums[other].y;
    }
  }
  return sum;
}

// Calls finish(channel, sums over all rows). Each block writes the sums of its chunk to
// partial[chunk, strip, slot]. The last block of a strip, which strips_done determines, adds these
// for the strip, and resets the strip's counter to 0. A strip's channels have slots [N, columns],
// so that neighbouring threads write and read neighbouring sums.
template <int N, class Values, class Finish>
__global__ void __launch_bounds__(kBlockThreads, kBlocksOfCard)
    ColumnSumsKernel(Values values, Finish finish, ColumnGeometry g, double2* partial,
                     unsigned* strips_done) {
  __shared__ double2 lines[N * kBlockThreads];  // [N, line, column]
  __shared__ bool is_last;
  const int mine = static_cast<int>(threadIdx.y) * g.columns + static_cast<int>(threadIdx.x);
  const int width = g.columns * N;
  const int strip = static_cast<int>(blockIdx.x);
  const int column = strip * width + static_cast<int>(threadIdx.x) * N;
  Pair sums[N] = {};
  if (column < g.c) WalkChunk(g, column, values.OfColumns(column, sums));
#pragma unroll
  for (int k = 0; k < N; ++k) {
    lines[k * kBlockThreads + mine] = make_double2(sums[k].a, sums[k].b);
  }
  __syncthreads();
  const double2 of_chunk = AddUp(
      mine, kBlockThreads / g.columns, width,
      [&](int line, int slot) {
        return lines[slot / g.columns * kBlockThreads + line * g.columns + slot % g.columns];
      },
      lines);
  const int64_t strips_slots = int64_t{gridDim.x} * width;
  double2* const partial_of_strip = partial + int64_t{strip} * width;
  if (mine < width) partial_of_strip[blockIdx.y * strips_slots + mine] = of_chunk;
  __threadfence();  // The sums must be visible before the strip's count is.
  __syncthreads();
  if (mine == 0) {
    is_last = gridDim.y == 1 || atomicAdd(strips_done + strip, 1u) == gridDim.y - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const double2 of_all = AddUp(
      mine, static_cast<int>(gridDim.y), width,
      [&](int chunk, int slot) { return __ldcg(partial_of_strip + chunk * strips_slots + slot); },
      lines);
  const int channel = strip * width + mine % g.columns * N + mine / g.columns;
  if (mine < width && channel < g.c) finish(channel, of_all);
  if (mine == 0 && gridDim.y > 1) strips_done[strip] = 0;
}

// Applies `map` to all elements; each thread computes the constants of its channels once.
template <int N, class Map>
__global__ void __launch_bounds__(kBlockThreads, kBlocksOfCard)
    ColumnMapKernel(Map map, ColumnGeometry g) {
  const int threads = static_cast<int>(blockIdx.x) * g.columns + static_cast<int>(threadIdx.x);
  const int column = threads * N;
  if (column < g.c) WalkChunk(g, column, map.OfColumns(column));
}

// Launches ColumnSumsKernel.
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

// N neighbouring numbers, of elements or of channels.
template <int N>
struct Row {
  float v[N];
};
template <int N, typename T>
__device__ __forceinline__ Packed<N, T> PackedAt(const T* p) {
  Packed<N, T> packed;
  packed.Read(p);
  return packed;
}
template <int N, typename T>
__device__ __forceinline__ Row<N> RowOf(const Packed<N, T>& packed) {
  Row<N> row;
  packed.Unpack(row.v);
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

#endif  // CAPSTAN_KERNELS_CUDA_OWN_COLUMNS_CUH_
