// The emulated CUDA runtime, as the emulated kernels and libraries see it: streams, and what memory
// is whose.
//
// Work on a stream runs on the host, in order, at the latest moment that CUDA allows: when somebody
// waits for it. Who reads a result without waiting sees what was there before.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace capstan::kernels::cuda::emulation {

// What a stream does at its turn; of devices' memory it may touch its own one's. An error stays
// with the device: its later work does not run, and its later calls return it.
using Work = std::function<cudaError_t()>;

// Puts `work` at the end of a stream, or into the graph that is being recorded from it, which runs
// it at every launch. Errors: cudaErrorInvalidResourceHandle  no such stream, or another device's
// than the calling thread's; the device's own.
cudaError_t Enqueue(cudaStream_t stream, Work work);

// Whether the bytes lie in one piece of that device's memory that is allocated now.
bool IsDeviceMemory(int device, const void* begin, size_t bytes);

// What cudaGetLastError will tell the calling thread; success leaves what there is. Returns it.
cudaError_t SetLastError(cudaError_t error);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_H_
