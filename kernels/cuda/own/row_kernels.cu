// Softmax cross-entropy and embeddings; row_kernels.h has the maths, shapes and bytes of each.
#include "kernels/cuda/own/launch.cuh"
#include "kernels/cuda/own/row_kernels.h"

namespace capstan::kernels::cuda {
namespace {

__device__ __forceinline__ void Report(unsigned long long* fault, int64_t position, uint32_t bits) {
  atomicMin(fault, static_cast<unsigned long long>(position) << 32 | bits);
}

// ---------------------------------------------------------------- softmax cross-entropy

__device__ __forceinline__ float WarpMax(float v) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    v = fmaxf(v, __shfl_xor_sync(kWholeWarp, v, step));  // fmaxf skips NaN; the sum keeps it.
  }
  return v;
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) SoftmaxForwardKernel(SoftmaxArgs a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = int64_t{gridDim.x} * kRowsOfBlock;
  for (int64_t i = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp; i < a.n; i += stride) {
    const T* const logits = static_cast<const T*>(a.logits) + i * a.classes;
    float largest = -INFINITY;
    for (int c = lane; c < a.classes; c += kWarp) largest = fmaxf(largest, Load(logits + c));
    largest = WarpMax(largest);
    double sum = 0.0;
    for (int c = lane; c < a.classes; c += kWarp) {
      sum += static_cast<double>(expf(Load(logits + c) - largest));
    }
    sum = WarpSum(sum);
    const auto factor = static_cast<float>(1.0 / sum);
    float* const probabilities = a.probabilities + i * a.classes;
    for (int c = lane; c < a.classes; c += kWarp) {
      probabilities[c] = expf(Load(logits + c) - largest) * factor;
    }
    if (lane != 0) continue;
    const int32_t label = a.labels[i];
    if (label >= 0 && label < a.classes) {
      a.loss[i] = static_cast<float>(log(sum) + static_cast<double>(largest) -
                                     static_cast<double>(Load(logits + label)));
    } else {
      a.loss[i] = NAN;
      Report(&a.faults->label, i, static_cast<uint32_t>(label));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) SoftmaxBackwardKernel(SoftmaxArgs a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = int64_t{gridDim.x} * kRowsOfBlock;
  for (int64_t i = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp; i < a.n; i += stride) {
    const int32_t label = a.labels[i];
    if (lane == 0 && (label < 0 || label >= a.classes)) {
      Report(&a.faults->label, i, static_cast<uint32_t>(label));
    }
    for (int c = lane; c < a.classes; c += kWarp) {
      const float target = c == label ? 1.0f : 0.0f;
      const int64_t at = i * a.classes + c;
      Store(static_cast<T*>(a.dlogits) + at, (a.probabilities[at] - target) * a.scale);
    }
  }
}

// ---------------------------------------------------------------- embeddings

// Returns the row; reports a row number out of range and returns -1 for it.
__device__ __forceinline__ int64_t RowOf(const EmbeddingArgs& a, int64_t i) {
  const float number = a.row_numbers[i];
  if (number >= 0.0f && number < static_cast<float>(a.rows) && number == floorf(number)) {
    return static_cast<int64_t>(number);
  }
  Report(&a.faults->row, i, BitsOf(number));
  return -1;
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) GatherKernel(EmbeddingArgs a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = int64_t{gridDim.x} * kRowsOfBlock;
  int64_t i = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  for (; i < a.count; i += stride) {
    const int64_t row = RowOf(a, i);
    const T* const from = static_cast<const T*>(a.weight) + row * a.dim;
    T* const to = static_cast<T*>(a.y) + i * a.dim;
    for (int d = lane; d < a.dim; d += kWarp) to[d] = row < 0 ? T{} : from[d];
  }
}

constexpr int kSortThreads = 1024;
constexpr int64_t kSortTile = 2 * kSortThreads;  // The keys that a block sorts in shared memory.
constexpr uint64_t kNoKey = ~uint64_t{0};        // It sorts behind all other keys.

// Rounds up to a power of two, at least kSortTile.
int64_t PaddedCount(int64_t count) {
  int64_t padded = kSortTile;
  while (padded < count) padded *= 2;
  return padded;
}

// Writes keys[i] = row << 32 | i. All are different, so there is only one sorted order.
__global__ void __launch_bounds__(kBlockThreads)
    KeysKernel(EmbeddingArgs a, uint64_t* keys, int64_t padded) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < padded; i += stride) {
    const int64_t row = i < a.count ? RowOf(a, i) : -1;
    keys[i] = row < 0 ? kNoKey : static_cast<uint64_t>(row) << 32 | static_cast<uint64_t>(i);
  }
}

__device__ __forceinline__ void CompareSwap(uint64_t* low, uint64_t* high, bool ascending) {
  const uint64_t a = *low;
  const uint64_t b = *high;
  if ((a > b) == ascending) {
    *low = b;
    *high = a;
  }
}

// Bitonic sort. A run of `size` keys is ascending iff its first index has the bit `size` clear.
// This kernel does the steps inside tiles of the merge to runs of `size`: distances
// min(size / 2, kSortThreads), .., 1. If `whole`, it instead sorts each tile from the start.
__global__ void __launch_bounds__(kSortThreads)
    SortTileKernel(uint64_t* keys, int64_t size, bool whole) {
  __shared__ uint64_t tile[kSortTile];
  uint64_t* const mine = keys + blockIdx.x * kSortTile;
  const int64_t first = blockIdx.x * kSortTile;
  tile[threadIdx.x] = mine[threadIdx.x];
  tile[threadIdx.x + kSortThreads] = mine[threadIdx.x + kSortThreads];
  for (int64_t run = whole ? 2 : size; run <= size; run *= 2) {
    const int64_t from = run / 2 < kSortThreads ? run / 2 : kSortThreads;
    for (auto distance = static_cast<int>(from); distance > 0; distance /= 2) {
      __syncthreads();
      const int thread = static_cast<int>(threadIdx.x);
      const int low = thread / distance * (2 * distance) + thread % distance;
      CompareSwap(&tile[low], &tile[low + distance], ((first + low) & run) == 0);
    }
  }
  __syncthreads();
  mine[threadIdx.x] = tile[threadIdx.x];
  mine[threadIdx.x + kSortThreads] = tile[threadIdx.x + kSortThreads];
}

// Does one step of a merge, at a distance that spans tiles. One thread handles one pair.
__global__ void __launch_bounds__(kBlockThreads)
    SortStepKernel(uint64_t* keys, int64_t pairs, int64_t size, int64_t distance) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < pairs; i += stride) {
    const int64_t low = i / distance * (2 * distance) + i % distance;
    CompareSwap(keys + low, keys + low + distance, (low & size) == 0);
  }
}

cudaError_t Sort(uint64_t* keys, int64_t padded, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>(padded / kSortTile);
  Launch(SortTileKernel, tiles, kSortThreads, stream, keys, kSortTile, true);
  for (int64_t size = 2 * kSortTile; size <= padded; size *= 2) {
    for (int64_t distance = size / 2; distance > kSortThreads; distance /= 2) {
      Launch(SortStepKernel, BlocksFor(padded / 2, kBlockThreads), kBlockThreads, stream, keys,
             padded / 2, size, distance);
    }
    Launch(SortTileKernel, tiles, kSortThreads, stream, keys, size, false);
  }
  return cudaGetLastError();
}

// The warp at the first key of a row adds all values of that row.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    ScatterAddKernel(EmbeddingArgs a, const uint64_t* keys) {
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = int64_t{gridDim.x} * kRowsOfBlock;
  int64_t i = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  for (; i < a.count; i += stride) {
    const uint64_t key = keys[i];
    if (key == kNoKey) continue;
    const uint64_t row = key >> 32;
    if (i > 0 && keys[i - 1] >> 32 == row) continue;
    for (int d = lane; d < a.dim; d += kWarp) {
      float sum = 0.0f;
      for (int64_t j = i; j < a.count && keys[j] >> 32 == row; ++j) {
        const auto position = static_cast<int64_t>(keys[j] & 0xffffffffu);
        sum += Load(static_cast<const T*>(a.dy) + position * a.dim + d);
      }
      a.dweight[static_cast<int64_t>(row) * a.dim + d] = sum;
    }
  }
}

}  // namespace

cudaError_t LaunchSoftmaxForward(const SoftmaxArgs& args, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  const unsigned blocks = BlocksFor(args.n, kRowsOfBlock);
  return ForElement(args.type, [&](auto t) {
    Launch(SoftmaxForwardKernel<decltype(t)>, blocks, kBlockThreads, stream, args);
    return cudaGetLastError();
  });
}

cudaError_t LaunchSoftmaxBackward(const SoftmaxArgs& args, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  const unsigned blocks = BlocksFor(args.n, kRowsOfBlock);
  return ForElement(args.type, [&](auto t) {
    Launch(SoftmaxBackwardKernel<decltype(t)>, blocks, kBlockThreads, stream, args);
    return cudaGetLastError();
  });
}

int64_t EmbeddingScratchBytes(int64_t count) { return 8 * PaddedCount(count); }

cudaError_t LaunchEmbeddingForward(const EmbeddingArgs& args, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  const unsigned blocks = BlocksFor(args.count, kRowsOfBlock);
  return ForElement(args.type, [&](auto t) {
    Launch(GatherKernel<decltype(t)>, blocks, kBlockThreads, stream, args);
    return cudaGetLastError();
  });
}

cudaError_t LaunchEmbeddingBackward(const EmbeddingArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(args.rows * args.dim * 4);
  if (const cudaError_t error = cudaMemsetAsync(args.dweight, 0, bytes, stream);
      error != cudaSuccess) {
    return error;
  }
  if (args.count == 0) return cudaSuccess;
  auto* const keys = static_cast<uint64_t*>(args.scratch);
  const int64_t padded = PaddedCount(args.count);
  Launch(KeysKernel, BlocksFor(padded, kBlockThreads), kBlockThreads, stream, args, keys, padded);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  if (const cudaError_t error = Sort(keys, padded, stream); error != cudaSuccess) return error;
  const unsigned blocks = BlocksFor(args.count, kRowsOfBlock);
  return ForElement(args.type, [&](auto t) {
    Launch(ScatterAddKernel<decltype(t)>, blocks, kBlockThreads, stream, args, keys);
    return cudaGetLastError();
  });
}

}  // namespace capstan::kernels::cuda
