// Helpers that the .cu files share: launches, loads and stores of neighbouring elements, grids.
//
// nvcc compiles the .cu files, and the host's compiler compiles them again for an emulated GPU, so
// that tests can run them on machines without a GPU. For the latter,
// kernels/cuda/emulation/grid/device_code.h provides CUDA's language and Launch.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_LAUNCH_CUH_
#define CAPSTAN_KERNELS_CUDA_OWN_LAUNCH_CUH_

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/element_rules.h"
#include "kernels/cuda/own/kernel_types.h"

namespace capstan::kernels::cuda {

inline constexpr int kBlockThreads = 256;
inline constexpr int64_t kGridBlocksMax = 1 << 16;  // Kernels loop over the rest.
inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarp = 32;
inline constexpr int kRowsOfBlock = kBlockThreads / kWarp;  // Where a warp handles a row.

#if defined(__CUDACC__)
// Enqueues kernel(args...) on all threads of a grid. An error stays for cudaGetLastError().
template <typename... Parameters>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            std::type_identity_t<Parameters>... args) {
  kernel<<<grid, block, 0, stream>>>(args...);
}
#endif

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr unsigned BlocksFor(int64_t items, int64_t items_of_block) {
  const int64_t blocks = CeilDiv(items, items_of_block);
  return static_cast<unsigned>(blocks < kGridBlocksMax ? blocks : kGridBlocksMax);
}

// The elements of two bytes in memory.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

// Calls run(T()), where T is the element type in memory.
template <class Run>
cudaError_t ForElement(Element type, const Run& run) {
  switch (type) {
    case Element::kFloat:
      return run(float());
    case Element::kBf16:
      return run(Bf16());
    case Element::kFp16:
      return run(Fp16());
  }
  return cudaErrorInvalidValue;
}

__device__ __forceinline__ float Load(const float* p) { return *p; }
__device__ __forceinline__ float Load(const Bf16* p) { return FromBf16(p->bits); }
__device__ __forceinline__ float Load(const Fp16* p) { return FromFp16(p->bits); }
__device__ __forceinline__ void Store(float* p, float v) { *p = v; }
__device__ __forceinline__ void Store(Bf16* p, float v) { p->bits = ToBf16(v); }
__device__ __forceinline__ void Store(Fp16* p, float v) { p->bits = ToFp16(v); }

// The sum of v over a warp, for all of its threads. T: float or double.
template <typename T>
__device__ __forceinline__ T WarpSum(T v) {
  for (int step = kWarp / 2; step > 0; step /= 2) v += __shfl_xor_sync(kWholeWarp, v, step);
  return v;
}

// 1 / standard deviation, as normalisations use it.
__device__ __forceinline__ float InverseDeviation(float variance, float epsilon) {
  return 1.0f / sqrtf(variance + epsilon);
}

// The most elements that a thread reads or writes at once: 16 bytes.
template <typename T>
inline constexpr int kWidest = 16 / sizeof(T);

// A type of kBytes bytes that one instruction loads or stores.
template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = uint8_t;
};
template <>
struct Word<2> {
  using Type = uint16_t;
};
template <>
struct Word<4> {
  using Type = uint32_t;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

// N neighbouring elements, as in memory: elements of two bytes take half as many registers as
// floats. REQUIRES: N is 1, or p is aligned to N elements.
template <int N, typename T>
struct Packed {
  typename Word<N * sizeof(T)>::Type word;
  __device__ __forceinline__ void Read(const T* p) {
    word = *reinterpret_cast<const decltype(word)*>(p);
  }
  __device__ __forceinline__ void Split(T (&parts)[N]) const {
    memcpy(parts, &word, sizeof(parts));
  }
  __device__ __forceinline__ void Unpack(float (&v)[N]) const {
    T parts[N];
    Split(parts);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = Load(parts + k);
  }
};

template <int N, typename T>
__device__ __forceinline__ void LoadN(const T* p, float (&v)[N]) {
  Packed<N, T> packed;
  packed.Read(p);
  packed.Unpack(v);
}
template <int N, typename T>
__device__ __forceinline__ void StoreN(T* p, const float (&v)[N]) {
  T parts[N];
#pragma unroll
  for (int k = 0; k < N; ++k) Store(parts + k, v[k]);
  typename Word<N * sizeof(T)>::Type word;
  memcpy(&word, parts, sizeof(parts));
  *reinterpret_cast<decltype(word)*>(p) = word;
}

// True if p may be read N elements at a time; true for null.
template <int N, typename T>
bool IsAligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (N * sizeof(T)) == 0;
}
template <typename T>
bool IsAligned4(const T* p) {
  return IsAligned<4>(p);
}

// Calls op.Run<N>(i) for all elements: N = 4 if `aligned`, else and at the end N = 1.
template <class Op>
__global__ void __launch_bounds__(kBlockThreads) MapKernel(Op op, int64_t n, bool aligned) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads * 4;
  for (int64_t i = (int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) * 4; i < n; i += stride) {
    if (aligned && i + 4 <= n) {
      op.template Run<4>(i);
    } else {
      for (int64_t j = i; j < n && j < i + 4; ++j) op.template Run<1>(j);
    }
  }
}
template <class Op>
cudaError_t Map(const Op& op, int64_t n, bool aligned, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;  // A grid of no blocks is itself an error.
  Launch(MapKernel<Op>, BlocksFor(n, 4 * kBlockThreads), kBlockThreads, stream, op, n, aligned);
  return cudaGetLastError();  // The launch's error; Synchronize() returns the kernel's.
}

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_LAUNCH_CUH_
