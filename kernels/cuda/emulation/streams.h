// StreamQueue: the work of one stream of an emulated GPU. This file also defines the types to which
// the handles of CUDA's runtime point: streams, events and graphs.
//
//   work enqueued ──► [ ][ ][ ] ──► runs when a caller waits for it, or for an event behind it
//   while a stream is recorded, work goes into its graph instead, and runs at each launch of it
//
// Thread safety: REQUIRES Runtime::mutex (runtime_state.h), which is held while work runs.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_STREAMS_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_STREAMS_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/memory.h"
#include "kernels/cuda/emulation/runtime.h"

namespace capstan::kernels::cuda::emulation {

// The state that the streams of a device share.
struct Context {
  int device = 0;
  Memory* memory = nullptr;
  cudaError_t error = cudaSuccess;  // The first error of its work. It stays, and no more work runs.
};

class StreamQueue {
 public:
  // `context` outlives the queue.
  explicit StreamQueue(Context& context) : context_(context) {}

  int device() const { return context_.device; }
  cudaError_t error() const { return context_.error; }
  void Add(Work work) { waiting_.push_back(std::move(work)); }
  // The number of pieces of work that were ever added. Such a number is a point in the work.
  uint64_t end() const { return done_ + waiting_.size(); }
  bool HasPassed(uint64_t point) const { return done_ >= point; }

  // Runs the work before `point` that has not begun. Returns the context's error.
  cudaError_t RunTo(uint64_t point);
  cudaError_t RunAll() { return RunTo(end()); }
  // Runs the next piece of work, if there is one, and then returns cudaErrorNotReady. A caller that
  // polls therefore reaches the end, but must poll more than once.
  cudaError_t Query();
  // Drops all work that has not run.
  void Drop();

 private:
  void RunNext();

  Context& context_;
  std::deque<Work> waiting_;
  uint64_t done_ = 0;
};

using RecordedWork = std::vector<Work>;

}  // namespace capstan::kernels::cuda::emulation

// CUDA's handles point to the types below.
struct CUstream_st {
  std::shared_ptr<capstan::kernels::cuda::emulation::StreamQueue> queue;
  // Null if the stream is not being recorded.
  std::shared_ptr<capstan::kernels::cuda::emulation::RecordedWork> recorded;
  // The thread that began the recording; `mode` says which threads may not make unsafe calls.
  std::thread::id recorder;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalidated = false;  // True if the recording cannot be used.
};

struct CUevent_st {
  int device = 0;
  bool timed = false;
  std::shared_ptr<capstan::kernels::cuda::emulation::StreamQueue> queue;  // Null: never recorded.
  uint64_t point = 0;
  // The time of the last record; written when the stream reaches it.
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

struct CUgraph_st {
  std::shared_ptr<const capstan::kernels::cuda::emulation::RecordedWork> work;
};
struct CUgraphExec_st {
  std::shared_ptr<const capstan::kernels::cuda::emulation::RecordedWork> work;
};

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_STREAMS_H_
