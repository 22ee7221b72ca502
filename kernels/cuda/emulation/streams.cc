#include "kernels/cuda/emulation/streams.h"

#include <utility>

namespace capstan::kernels::cuda::emulation {

void StreamQueue::RunNext() {
  const Work work = std::move(waiting_.front());
  waiting_.pop_front();
  // Counted first: an event behind other streams' work may lead back here.
  ++done_;
  if (context_.error == cudaSuccess) context_.error = work();
}

cudaError_t StreamQueue::RunTo(uint64_t point) {
  if (HasPassed(point)) return context_.error;
  // Of this device alone, also where another one's stream waits for this one.
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
