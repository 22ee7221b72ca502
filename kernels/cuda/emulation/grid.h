// Grids of an emulated GPU: blocks one after the other, the threads of a block as fibers that give
// way where they wait for each other.
//
// From launch to launch blocks and threads change their orders, first to last or last to first, as
// bits of a pseudorandom sequence have it: who misses a barrier gets other numbers. What a block
// shares holds NaN when it begins.
//
// Thread safety: one grid at a time, whatever thread runs it; the calls of kernels are for fibers.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_GRID_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_GRID_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/emulation/card.h"

namespace capstan::kernels::cuda::emulation {

inline constexpr int kWarpLanes = kWarpThreads;

// Where the variables lie that the blocks of a kernel share; none: null.
struct SharedMemory {
  char* begin = nullptr;
  char* end = nullptr;
};

// Enqueues `thread` for all threads of a grid. Errors, for cudaGetLastError:
// cudaErrorInvalidConfiguration  no card has such a grid; and those of Enqueue (runtime.h).
void LaunchGrid(dim3 grid, dim3 block, cudaStream_t stream, SharedMemory shared,
                std::function<void()> thread);

// ---------------------------------------------------------------- what a kernel sees

inline thread_local uint3 threadIdx;
inline thread_local uint3 blockIdx;
inline thread_local dim3 gridDim;

using WarpWords = std::array<uint64_t, kWarpLanes>;

// Returns once all threads of the block are here. REQUIRES: none has ended.
void SyncThreads();

// What all lanes of the warp brought, once all are here; stays until the next but one exchange.
// REQUIRES: `mask` has all lanes, and none has ended.
const WarpWords& ExchangeInWarp(unsigned mask, uint64_t mine);

// The calling thread's number in its warp.
int Lane();

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_GRID_H_
