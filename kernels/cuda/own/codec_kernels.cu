// Norm, int8 codes and top-k; codec_kernels.h has the bytes, device_ops.h the maths of each.
#include "kernels/cuda/own/codec_kernels.h"
#include "kernels/cuda/own/launch.cuh"

namespace capstan::kernels::cuda {
namespace {

// ---------------------------------------------------------------- norm

constexpr int kNormBlocksMax = 1024;

__device__ __forceinline__ void AddTo(NormResult* sum, const NormResult& other) {
  sum->sum_of_squares += other.sum_of_squares;
  sum->not_finite += other.not_finite;
}

// Returns the block's sum, in thread 0. It adds in a tree over the threads, in a fixed order.
__device__ NormResult BlockSum(const NormResult& mine) {
  __shared__ double sums[kBlockThreads];
  __shared__ int64_t counts[kBlockThreads];
  sums[threadIdx.x] = mine.sum_of_squares;
  counts[threadIdx.x] = mine.not_finite;
  __syncthreads();
  for (int half = kBlockThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
      counts[threadIdx.x] += counts[threadIdx.x + half];
    }
    __syncthreads();
  }
  return {sums[0], counts[0]};
}

__global__ void __launch_bounds__(kBlockThreads)
    NormKernel(int64_t n, const float* values, NormResult* partial) {
  NormResult sum;
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < n; i += stride) {
    const float value = values[i];
    if (MagnitudeKey(value) >= 0x7f800000u) {
      ++sum.not_finite;
    } else {
      sum.sum_of_squares += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlockThreads)
    NormFinishKernel(int blocks, const NormResult* partial, NormResult* result) {
  NormResult sum;
  for (int i = threadIdx.x; i < blocks; i += kBlockThreads) AddTo(&sum, partial[i]);
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *result = sum;
}

// ---------------------------------------------------------------- int8

// One block of threads handles one block of values.
__global__ void __launch_bounds__(kInt8Block) QuantizeKernel(QuantizeArgs a) {
  __shared__ uint32_t warps[kInt8Block / kWarp];
  const int64_t i = int64_t{blockIdx.x} * kInt8Block + threadIdx.x;
  const float value = i < a.n ? a.gradient[i] + a.residual[i] : 0.0f;
  uint32_t largest = __reduce_max_sync(kWholeWarp, MagnitudeKey(value));
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = largest;
  __syncthreads();
  largest = 0;
  for (const uint32_t one : warps) largest = one > largest ? one : largest;
  const float scale = Int8Scale(FloatOf(largest >= 0x7f800000u ? 0x7fc00000u : largest));
  if (threadIdx.x == 0) a.scales[blockIdx.x] = scale;
  if (i >= a.n) return;
  const int8_t code = Int8Code(value, scale);
  a.codes[i] = code;
  a.residual[i] = value - FromInt8(code, scale);
}

__global__ void __launch_bounds__(kBlockThreads) DequantizeKernel(DequantizeArgs a) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < a.n; i += stride) {
    a.values[i] = FromInt8(a.codes[i], a.scales[i / kInt8Block]);
  }
}

// ---------------------------------------------------------------- top-k

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kTile = 1024;  // The elements, and the threads, of a block that counts or writes.

// The state of the search for the key of the k-th value: the high bits that are known, and how many
// values with these bits are still wanted.
struct Selection {
  uint32_t prefix;
  uint32_t mask;
  uint32_t wanted;
  uint32_t unused;
  uint32_t histogram[kDigits];
};

// Counts of keys above the k-th (high word) and equal to it (low word).
using Counts = unsigned long long;

__global__ void __launch_bounds__(kDigits) StartKernel(Selection* s, uint32_t k) {
  s->histogram[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    s->prefix = 0;
    s->mask = 0;
    s->wanted = k;
  }
}

__global__ void __launch_bounds__(kBlockThreads) AccumulateKernel(TopKArgs a) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < a.n; i += stride) {
    a.residual[i] = a.gradient[i] + a.residual[i];
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    HistogramKernel(int64_t n, const float* values, int shift, Selection* s) {
  __shared__ uint32_t counts[kDigits];
  static_assert(kDigits == kBlockThreads);
  counts[threadIdx.x] = 0;
  const uint32_t prefix = s->prefix;
  const uint32_t mask = s->mask;
  __syncthreads();
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < n; i += stride) {
    const uint32_t key = MagnitudeKey(values[i]);
    if ((key & mask) == prefix) atomicAdd(&counts[key >> shift & (kDigits - 1)], 1u);
  }
  __syncthreads();
  if (counts[threadIdx.x] != 0) atomicAdd(&s->histogram[threadIdx.x], counts[threadIdx.x]);
}

// Selects the digit that holds the k-th value, and clears the histogram. Runs as one block.
__global__ void __launch_bounds__(kDigits) PickKernel(int shift, Selection* s) {
  __shared__ uint32_t counts[kDigits];
  counts[threadIdx.x] = s->histogram[threadIdx.x];
  s->histogram[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint32_t wanted = s->wanted;  // At most the sum of the counts.
  int digit = kDigits - 1;
  for (; digit > 0 && counts[digit] < wanted; --digit) wanted -= counts[digit];
  s->prefix |= static_cast<uint32_t>(digit) << shift;
  s->mask |= static_cast<uint32_t>(kDigits - 1) << shift;
  s->wanted = wanted;
}

// Returns the sum over the threads before this one; *total is the sum over all. REQUIRES: kTile
// threads.
__device__ Counts BlockScan(Counts mine, Counts* total) {
  __shared__ Counts warps[kTile / kWarp];
  const int lane = threadIdx.x % kWarp;
  Counts sum = mine;
  for (int step = 1; step < kWarp; step *= 2) {
    const Counts before = __shfl_up_sync(kWholeWarp, sum, step);
    if (lane >= step) sum += before;
  }
  if (lane == kWarp - 1) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  Counts base = 0;
  Counts all = 0;
  for (int warp = 0; warp < kTile / kWarp; ++warp) {
    if (warp == threadIdx.x / kWarp) base = all;
    all += warps[warp];
  }
  __syncthreads();  // The next call writes the array again.
  *total = all;
  return base + sum - mine;
}

__device__ __forceinline__ Counts CountOf(uint32_t key, uint32_t kth) {
  return key > kth ? Counts{1} << 32 : key == kth ? Counts{1} : Counts{0};
}

__global__ void __launch_bounds__(kTile)
    CountTilesKernel(int64_t n, const float* values, const Selection* s, Counts* tiles) {
  const int64_t i = int64_t{blockIdx.x} * kTile + threadIdx.x;
  Counts total = 0;
  BlockScan(i < n ? CountOf(MagnitudeKey(values[i]), s->prefix) : 0, &total);
  if (threadIdx.x == 0) tiles[blockIdx.x] = total;
}

// Sets tiles[t] to the sum over the tiles before t. Runs as one block.
__global__ void __launch_bounds__(kTile) ScanTilesKernel(int64_t count, Counts* tiles) {
  Counts before = 0;
  for (int64_t first = 0; first < count; first += kTile) {
    const int64_t i = first + threadIdx.x;
    Counts total = 0;
    const Counts scanned = BlockScan(i < count ? tiles[i] : 0, &total);
    if (i < count) tiles[i] = before + scanned;
    before += total;
  }
}

__global__ void __launch_bounds__(kTile)
    WriteKernel(TopKArgs a, const Selection* s, const Counts* tiles) {
  const int64_t i = int64_t{blockIdx.x} * kTile + threadIdx.x;
  const float value = i < a.n ? a.residual[i] : 0.0f;
  const Counts mine = i < a.n ? CountOf(MagnitudeKey(value), s->prefix) : 0;
  Counts total = 0;
  const Counts before = tiles[blockIdx.x] + BlockScan(mine, &total);
  const auto larger = static_cast<uint32_t>(before >> 32);
  const auto equal = static_cast<uint32_t>(before);
  const uint32_t wanted = s->wanted;  // How many values equal to the k-th are taken: the first.
  const bool chosen = mine > 1 || (mine == 1 && equal < wanted);
  if (!chosen) return;
  const uint32_t at = larger + (equal < wanted ? equal : wanted);
  a.indices[at] = static_cast<int32_t>(i);
  a.values[at] = value;
  a.residual[i] = 0.0f;
}

unsigned TilesOf(int64_t n) { return static_cast<unsigned>(CeilDiv(n, kTile)); }

}  // namespace

int64_t NormScratchBytes() { return kNormBlocksMax * static_cast<int64_t>(sizeof(NormResult)); }

cudaError_t LaunchNorm(const NormArgs& args, void* scratch, cudaStream_t stream) {
  const int64_t wanted = CeilDiv(args.n, 4 * kBlockThreads);
  const auto blocks = static_cast<int>(wanted < kNormBlocksMax ? wanted : kNormBlocksMax);
  auto* const partial = static_cast<NormResult*>(scratch);
  if (blocks > 0) {
    Launch(NormKernel, static_cast<unsigned>(blocks), kBlockThreads, stream, args.n, args.values,
           partial);
  }
  Launch(NormFinishKernel, 1, kBlockThreads, stream, blocks, partial, args.result);
  return cudaGetLastError();
}

cudaError_t LaunchQuantize(const QuantizeArgs& args, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  Launch(QuantizeKernel, static_cast<unsigned>(CeilDiv(args.n, kInt8Block)), kInt8Block, stream,
         args);
  return cudaGetLastError();
}

cudaError_t LaunchDequantize(const DequantizeArgs& args, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  Launch(DequantizeKernel, BlocksFor(args.n, kBlockThreads), kBlockThreads, stream, args);
  return cudaGetLastError();
}

int64_t TopKScratchBytes(int64_t n) {
  return static_cast<int64_t>(sizeof(Selection)) +
         int64_t{TilesOf(n)} * static_cast<int64_t>(sizeof(Counts));
}

cudaError_t LaunchTopK(const TopKArgs& args, void* scratch, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  const unsigned blocks = BlocksFor(args.n, 4 * kBlockThreads);
  Launch(AccumulateKernel, blocks, kBlockThreads, stream, args);
  if (args.k == 0) return cudaGetLastError();
  auto* const selection = static_cast<Selection*>(scratch);
  auto* const tiles = reinterpret_cast<Counts*>(selection + 1);
  Launch(StartKernel, 1, kDigits, stream, selection, static_cast<uint32_t>(args.k));
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    Launch(HistogramKernel, blocks, kBlockThreads, stream, args.n, args.residual, shift, selection);
    Launch(PickKernel, 1, kDigits, stream, shift, selection);
  }
  Launch(CountTilesKernel, TilesOf(args.n), kTile, stream, args.n, args.residual, selection, tiles);
  Launch(ScanTilesKernel, 1, kTile, stream, int64_t{TilesOf(args.n)}, tiles);
  Launch(WriteKernel, TilesOf(args.n), kTile, stream, args, selection, tiles);
  return cudaGetLastError();
}

}  // namespace capstan::kernels::cuda
