// Streams, events and graphs of emulated GPUs. The handles of CUDA's runtime point to them.
//
//   work enqueued ──► [ ][ ][ ] ──► run, when somebody waits for it, or for an event behind it
//   while a stream is recorded, work goes into its graph instead, and runs at each launch of that
//
// Thread safety: under Runtime::mutex (runtime_state.h), which is held while work runs.
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

// What the streams of a device share.
struct Context {
  int device = 0;
  Memory* memory = nullptr;
  cudaError_t error = cudaSuccess;  // The first one of its work. It stays, and work does not run.
};

class StreamQueue {
 public:
  // `context` outlives it.
  explicit StreamQueue(Context& context) : context_(context) {}

  int device() const { return context_.device; }
  cudaError_t error() const { return context_.error; }
  void Add(Work work) { waiting_.push_back(std::move(work)); }
  // How much was ever added: a point in the stream's work.
  uint64_t end() const { return done_ + waiting_.size(); }
  bool HasPassed(uint64_t point) const { return done_ >= point; }

  // Runs the work before `point`, unless it runs already. Returns the context's error.
  cudaError_t RunTo(uint64_t point);
  cudaError_t RunAll() { return RunTo(end()); }
  // Runs the next piece. cudaErrorNotReady: there was one, so that who asks in a loop comes to the
  // end, and has to ask more than once.
  cudaError_t Query();
  // Forgets what has not run.
  void Drop();

 private:
  void RunNext();

  Context& context_;
  std::deque<Work> waiting_;
  uint64_t done_ = 0;
};

using RecordedWork = std::vector<Work>;

}  // namespace capstan::kernels::cuda::emulation

// What CUDA's handles point to.
struct CUstream_st {
  std::shared_ptr<capstan::kernels::cuda::emulation::StreamQueue> queue;
  // Null: not being recorded.
  std::shared_ptr<capstan::kernels::cuda::emulation::RecordedWork> recorded;
  // Who began it, and to whom it forbids what is unsafe meanwhile.
  std::thread::id recorder;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalidated = false;  // The recording.
};

struct CUevent_st {
  int device = 0;
  bool timed = false;
  std::shared_ptr<capstan::kernels::cuda::emulation::StreamQueue> queue;  // Null: not recorded.
  uint64_t point = 0;
  // Of the last record; written when it comes.
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

struct CUgraph_st {
  std::shared_ptr<const capstan::kernels::cuda::emulation::RecordedWork> work;
};
struct CUgraphExec_st {
  std::shared_ptr<const capstan::kernels::cuda::emulation::RecordedWork> work;
};

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_STREAMS_H_
