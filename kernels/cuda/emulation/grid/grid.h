// LaunchGrid: runs the grids of an emulated GPU. Blocks run one after the other; the threads of a
// block are fibers, which pause when they wait for each other.
//
// Each launch runs blocks and threads first to last or last to first, as bits of a pseudorandom
// sequence decide, so that a kernel that lacks a barrier gives varying results. A block's shared
// variables hold NaN when it begins.
//
// Thread safety: thread-safe, but only one grid runs at a time. Only fibers may call the functions
// for kernels.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_GRID_GRID_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_GRID_GRID_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/emulation/card.h"

namespace capstan::kernels::cuda::emulation {

inline constexpr int kWarpLanes = kWarpThreads;

// The address range of a kernel's shared variables; null if there are none.
struct SharedMemory {
  char* begin = nullptr;
  char* end = nullptr;
};

// Enqueues `thread` for all threads of a grid.
// Errors, for cudaGetLastError: cudaErrorInvalidConfiguration  no card supports such a grid; else
//                               those of Enqueue (runtime.h).
void LaunchGrid(dim3 grid, dim3 block, cudaStream_t stream, SharedMemory shared,
                std::function<void()> thread);

// ---------------------------------------------------------------- what a kernel sees

inline thread_local uint3 threadIdx;
inline thread_local uint3 blockIdx;
inline thread_local dim3 gridDim;

using WarpWords = std::array<uint64_t, kWarpLanes>;

// Returns once all threads of the block have called it. REQUIRES: none has ended.
void SyncThreads();

// Waits until all lanes of the warp have called it, and returns their words. The result is valid
// until the next but one exchange. REQUIRES: `mask` has all lanes, and none has ended.
const WarpWords& ExchangeInWarp(unsigned mask, uint64_t mine);

// The calling thread's number in its warp.
int Lane();

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_GRID_GRID_H_
