// Defines the parts of CUDA's language that the .cu files use, for the host's compiler: kernels as
// plain functions, thread indices, barriers, warps, atomics and launches.
//
// A thread of a kernel is a fiber (grid.h). Blocks run one after the other, so a block's shared
// variables are static, and atomics are plain operations. GCC places the shared variables next to
// each other, so that they can be filled with NaN before each block; this needs -fno-data-sections,
// and kernels with internal linkage. All threads must reach a barrier: a thread that waits for one
// that has ended, or that waits elsewhere, ends the process with a message.
//
// This header replaces <cuda_runtime.h> in device code: the build includes it before the first line
// of the .cu files, and nothing else includes it.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_GRID_DEVICE_CODE_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_GRID_DEVICE_CODE_H_

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/emulation/grid/grid.h"

// For the host's compiler the toolkit's headers define __global__, __device__ and __shared__ as
// empty. That is right for the first two, but not for __shared__.
#undef __shared__
#if defined(__GNUC__) && !defined(__clang__)
// An attribute with the section's name does not work: GCC 12 drops it for variables of templates.
#define __shared__ static __attribute__((noinit))
// The first and the last byte of this file's variables, in the assembler's order.
__asm__(
    ".pushsection .noinit,\"aw\",%nobits\n"
    ".balign 8\n"
    "capstan_shared_begin:\n"
    ".subsection 8000\n"
    ".balign 8\n"
    "capstan_shared_end:\n"
    ".popsection\n");
extern char capstan_shared_begin[] __asm__("capstan_shared_begin")
    __attribute__((visibility("hidden")));
extern char capstan_shared_end[] __asm__("capstan_shared_end")
    __attribute__((visibility("hidden")));
#else
#define __shared__ static
#endif
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace capstan::kernels::cuda {

using emulation::blockIdx;
using emulation::gridDim;
using emulation::threadIdx;

inline void __syncthreads() { emulation::SyncThreads(); }

namespace emulation {

// Packs a lane's value into the 64 bits that lanes exchange.
template <typename T>
uint64_t ToWord(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t word = 0;
  memcpy(&word, &value, sizeof(T));
  return word;
}
template <typename T>
T FromWord(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}

// Returns the shared variables of the including .cu file; each file has its own.
static inline SharedMemory SharedByBlocks() {
#if defined(__GNUC__) && !defined(__clang__)
  return {capstan_shared_begin, capstan_shared_end};
#else
  return {};
#endif
}

template <typename... Parameters>
static void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
                   std::type_identity_t<Parameters>... args) {
  LaunchGrid(grid, block, stream, SharedByBlocks(), [=] { kernel(args...); });
}

}  // namespace emulation

using emulation::Launch;

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int step) {
  const emulation::WarpWords& words = emulation::ExchangeInWarp(mask, emulation::ToWord(value));
  return emulation::FromWord<T>(words[static_cast<size_t>(emulation::Lane() ^ step)]);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned step) {
  const emulation::WarpWords& words = emulation::ExchangeInWarp(mask, emulation::ToWord(value));
  const int from = emulation::Lane() - static_cast<int>(step);
  return from < 0 ? value : emulation::FromWord<T>(words[static_cast<size_t>(from)]);
}

inline uint32_t __reduce_max_sync(unsigned mask, uint32_t value) {
  uint32_t largest = 0;
  for (const uint64_t word : emulation::ExchangeInWarp(mask, value)) {
    largest = word > largest ? static_cast<uint32_t>(word) : largest;
  }
  return largest;
}

template <typename T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <typename T>
T atomicMin(T* at, T value) {
  const T before = *at;
  if (value < before) *at = value;
  return before;
}

template <typename T>
T __ldg(const T* at) {
  return *at;
}
template <typename T>
T __ldcg(const T* at) {
  return *at;
}
inline void __threadfence() {}

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_GRID_DEVICE_CODE_H_
