#include "kernels/cuda/emulation/streams.h"

#include <utility>

namespace capstan::kernels::cuda::emulation {

void StreamQueue::RunNext() {
  const Work work = std::move(waiting_.front());
  waiting_.pop_front();
  // Counts it first: the work may wait for other streams, whose work may lead back to this queue.
  ++done_;
  if (context_.error == cudaSuccess) context_.error = work();
}

cudaError_t StreamQueue::RunTo(uint64_t point) {
  if (HasPassed(point)) return context_.error;
  // Opens this device's memory alone, even if a stream of another device waits for this one.
  const MemoryAccess access(*context_.memory, OnlyDevice(context_.device));
  while (!HasPassed(point)) RunNext();
  return context_.error;
}

cudaError_t StreamQueue::Query() {
  if (waiting_.empty()) return context_.error;
  RunTo(done_ + 1);
  return context_.error == cudaSuccess ? cudaErrorNotReady : context_.error;
}

void StreamQueue::Drop() {
  done_ = end();
  waiting_.clear();
}

}  // namespace capstan::kernels::cuda::emulation
