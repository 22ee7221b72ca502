// The emulated CUDA runtime: streams, events and graphs, as CUDA documents them.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/cuda/emulation/counts.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/emulation/runtime_state.h"
#include "kernels/cuda/emulation/streams.h"

namespace capstan::kernels::cuda::emulation {
namespace {

// True if the time between two events of a stream is one millisecond per piece of work.
bool CountsWork() {
  static const char* const clock = std::getenv("CAPSTAN_EMULATED_CLOCK");
  return clock != nullptr && std::strcmp(clock, "work") == 0;
}

bool IsEvent(cudaEvent_t event) { return TheRuntime().events.contains(event); }

}  // namespace

extern "C" {  // With C linkage a function is CUDA's in any namespace.

// ---------------------------------------------------------------- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return Guarded([&] {
    *stream = new CUstream_st;
    Context& context = TheRuntime().contexts[static_cast<size_t>(CurrentDevice())];
    (*stream)->queue = std::make_shared<StreamQueue>(context);
    TheRuntime().streams.insert(*stream);
    return cudaSuccess;
  });
}

// Does not wait: enqueued work runs when another call needs it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Guarded([&] {
    StreamQueue* const queue = QueueOf(stream);
    if (queue == nullptr) return cudaErrorInvalidResourceHandle;
    if (!queue->HasPassed(queue->end())) TheRuntime().orphans.push_back(stream->queue);
    TheRuntime().streams.erase(stream);
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Guarded([&] {
    if (QueueOf(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (IsRecorded(stream)) return Invalidate(stream);
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    return stream->queue->RunAll();
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Guarded([&] {
    if (QueueOf(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (IsRecorded(stream)) return Invalidate(stream);
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    return stream->queue->Query();
  });
}

// ---------------------------------------------------------------- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Guarded([&] {
    *event = new CUevent_st;
    (*event)->device = CurrentDevice();
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    TheRuntime().events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Guarded([&] {
    if (TheRuntime().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Guarded([&] {
    StreamQueue* const queue = QueueOf(stream);
    if (!IsEvent(event) || queue == nullptr || queue->device() != event->device) {
      return cudaErrorInvalidResourceHandle;
    }
    if (IsRecorded(stream)) return Invalidate(stream);
    auto time = std::make_shared<std::chrono::steady_clock::time_point>();
    queue->Add([time] {
      *time = std::chrono::steady_clock::now();
      return cudaSuccess;
    });
    event->queue = stream->queue;
    event->point = queue->end();
    event->time = std::move(time);
    return cudaSuccess;
  });
}

// The event may belong to another device; that device's error then becomes the stream's.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Guarded([&] {
    StreamQueue* const queue = QueueOf(stream);
    if (!IsEvent(event) || queue == nullptr) return cudaErrorInvalidResourceHandle;
    if (IsRecorded(stream)) return Invalidate(stream);
    if (event->queue == nullptr) return cudaSuccess;
    queue->Add([other = event->queue, point = event->point] { return other->RunTo(point); });
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Guarded([&] {
    if (!IsEvent(event)) return cudaErrorInvalidResourceHandle;
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    return event->queue == nullptr ? cudaSuccess : event->queue->RunTo(event->point);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Guarded([&] {
    if (!IsEvent(event)) return cudaErrorInvalidResourceHandle;
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    if (event->queue == nullptr) return cudaSuccess;
    if (event->queue->HasPassed(event->point)) return event->queue->error();
    return event->queue->Query();
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return Guarded([&] {
    for (const cudaEvent_t event : {from, to}) {
      if (!IsEvent(event) || !event->timed || event->queue == nullptr) {
        return cudaErrorInvalidResourceHandle;
      }
      if (!event->queue->HasPassed(event->point)) return cudaErrorNotReady;
    }
    if (CountsWork() && from->queue == to->queue) {
      *milliseconds = static_cast<float>(static_cast<int64_t>(to->point - from->point));
      return cudaSuccess;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(*to->time - *from->time).count();
    return cudaSuccess;
  });
}

// ---------------------------------------------------------------- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Guarded([&] {
    if (QueueOf(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (IsRecorded(stream)) return cudaErrorIllegalState;
    stream->recorded = std::make_shared<RecordedWork>();
    stream->mode = mode;
    stream->recorder = std::this_thread::get_id();
    stream->invalidated = false;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Guarded([&] {
    *graph = nullptr;
    if (QueueOf(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (!IsRecorded(stream)) return cudaErrorIllegalState;
    if (stream->mode != cudaStreamCaptureModeRelaxed &&
        stream->recorder != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    const auto recorded = std::exchange(stream->recorded, nullptr);
    if (stream->invalidated) return cudaErrorStreamCaptureInvalidated;
    *graph = new CUgraph_st{.work = recorded};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return Guarded([&] {
    *executable = new CUgraphExec_st{.work = graph->work};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Guarded([&] {
    return Enqueue(stream, [work = executable->work] {
      if (Counts* const counts = CountsOrNull(); counts != nullptr) ++counts->graphs;
      for (const Work& one : *work) {
        if (const cudaError_t error = one(); error != cudaSuccess) return error;
      }
      return cudaSuccess;
    });
  });
}

}  // extern "C"
}  // namespace capstan::kernels::cuda::emulation
