// The interface of the emulated CUDA runtime for the emulated kernels and libraries: they enqueue
// work on streams, and ask which memory belongs to a device.
//
// Work on a stream runs on the host, in order, at the latest moment that CUDA allows: when a caller
// waits for it. Code that reads a result without waiting sees the old contents of memory.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace capstan::kernels::cuda::emulation {

// A piece of work on a stream. It may touch only its own device's memory. An error stays with the
// device: its later work does not run, and its later calls return the error.
using Work = std::function<cudaError_t()>;

// Puts `work` at the end of a stream. If the stream is being recorded, puts it into the graph
// instead, which runs it at every launch.
// Errors: cudaErrorInvalidResourceHandle  there is no such stream, or it belongs to another device
//                                         than the calling thread's current one.
//         else                            the device's own.
cudaError_t Enqueue(cudaStream_t stream, Work work);

// True if the bytes are in one piece of that device's memory that is allocated now.
bool IsDeviceMemory(int device, const void* begin, size_t bytes);

// Sets the error that cudaGetLastError returns to the calling thread; success changes nothing.
// Returns `error`.
cudaError_t SetLastError(cudaError_t error);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_H_
