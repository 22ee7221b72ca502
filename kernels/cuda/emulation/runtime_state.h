// Runtime: the state that the functions of the emulated CUDA runtime share: devices, valid handles,
// and the calling thread's device.
//
// Thread safety: Runtime::mutex guards everything that is not constant.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_STATE_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_STATE_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/cuda/emulation/memory.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/emulation/streams.h"

namespace capstan::kernels::cuda::emulation {

struct Runtime {
  Runtime();

  const int devices;
  Memory memory;
  // Held while work runs. It is recursive because work may run other streams' work.
  std::recursive_mutex mutex;
  std::vector<Context> contexts;  // Indexed by device.
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  // The queues of destroyed streams that still have work to run.
  std::vector<std::shared_ptr<StreamQueue>> orphans;
};

Runtime& TheRuntime();
int CurrentDevice();  // The calling thread's current device.

// True if a recording forbids the calling thread to make unsafe calls (calls that wait, query, or
// change memory): the thread itself records, in a mode that is not relaxed, or any thread records
// in the global mode. Invalidates these recordings.
bool IsForbiddenNow();

// Runs all work that was enqueued for a device. Returns the device's error.
cudaError_t RunAll(int device);

// Runs call() under the mutex. If the calling thread's device already has an error, returns that
// instead. An error becomes the thread's last error.
template <typename Call>
cudaError_t Guarded(const Call& call) {
  const std::lock_guard<std::recursive_mutex> lock(TheRuntime().mutex);
  const cudaError_t before = TheRuntime().contexts[static_cast<size_t>(CurrentDevice())].error;
  return SetLastError(before != cudaSuccess ? before : call());
}

// Returns null if there is no such stream.
inline StreamQueue* QueueOf(cudaStream_t stream) {
  return TheRuntime().streams.contains(stream) ? stream->queue.get() : nullptr;
}

inline bool IsRecorded(cudaStream_t stream) { return stream->recorded != nullptr; }

// Invalidates a stream's recording, after a call that is not allowed while the stream is recorded.
inline cudaError_t Invalidate(cudaStream_t stream) {
  stream->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_STATE_H_
