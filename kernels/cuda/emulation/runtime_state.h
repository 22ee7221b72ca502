// What the functions of the emulated CUDA runtime share: devices, handles that are valid, and the
// calling thread's device.
//
// Thread safety: under Runtime::mutex, but for what is constant.
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
  // Held while work runs, which may ask for other streams' work.
  std::recursive_mutex mutex;
  std::vector<Context> contexts;  // By device.
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  // Of streams that were destroyed, while they have work that waits.
  std::vector<std::shared_ptr<StreamQueue>> orphans;
};

Runtime& TheRuntime();
int CurrentDevice();  // The calling thread's.

// Whether the calling thread may not make calls that are unsafe while something is recorded (that
// wait, ask, or change memory): it records itself, or anyone does in the global mode. The
// recordings that forbid it are useless then.
bool IsForbiddenNow();

// Runs all that was enqueued for a device. Returns its error.
cudaError_t RunAll(int device);

// call() under the mutex, unless the calling thread's device has an error, which is returned then.
// Either way the error becomes the thread's last one.
template <typename Call>
cudaError_t Guarded(const Call& call) {
  const std::lock_guard<std::recursive_mutex> lock(TheRuntime().mutex);
  const cudaError_t before = TheRuntime().contexts[static_cast<size_t>(CurrentDevice())].error;
  return SetLastError(before != cudaSuccess ? before : call());
}

// Null: no such stream.
inline StreamQueue* QueueOf(cudaStream_t stream) {
  return TheRuntime().streams.contains(stream) ? stream->queue.get() : nullptr;
}

inline bool IsRecorded(cudaStream_t stream) { return stream->recorded != nullptr; }

// What may not be called while a stream is recorded makes the recording useless.
inline cudaError_t Invalidate(cudaStream_t stream) {
  stream->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_RUNTIME_STATE_H_
