// The emulated CUDA runtime: errors, devices and memory, as CUDA documents them.
#include "kernels/cuda/emulation/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/cuda/emulation/card.h"
#include "kernels/cuda/emulation/counts.h"
#include "kernels/cuda/emulation/memory.h"
#include "kernels/cuda/emulation/runtime_state.h"
#include "kernels/cuda/emulation/streams.h"

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr int kDevicesMax = 8;
// Less than a card has, since the host must provide it.
constexpr size_t kMemoryBytes = size_t{4} << 30;

int CountDevices() {
  const char* const wanted = std::getenv("CAPSTAN_EMULATED_GPUS");
  const int count = wanted == nullptr ? 1 : std::atoi(wanted);
  return count < 0 ? 0 : count > kDevicesMax ? kDevicesMax : count;
}

bool Counted() { return CountsOrNull() != nullptr; }

using Lock = std::lock_guard<std::recursive_mutex>;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t ErrorOf(int device) { return TheRuntime().contexts[static_cast<size_t>(device)].error; }

// One side of a copy, and its place when the copy was enqueued; nullopt is pageable memory.
struct Side {
  const void* begin = nullptr;
  size_t bytes = 0;
  std::optional<int> place;

  bool IsDevice() const { return place.has_value() && *place != kPinned; }
  bool IsPageable() const { return !place.has_value(); }
  // The device whose memory a copy must open, if any.
  DeviceSet Devices() const { return IsDevice() ? OnlyDevice(*place) : 0; }
  bool IsStillThere() const {
    return IsPageable() || TheRuntime().memory.Holds(*place, begin, bytes);
  }
};

Side SideOf(const void* begin, size_t bytes) {
  return {begin, bytes, TheRuntime().memory.PlaceOf(begin, bytes)};
}

bool Fits(cudaMemcpyKind kind, const Side& to, const Side& from) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return to.IsDevice() && !from.IsDevice();
    case cudaMemcpyDeviceToHost:
      return !to.IsDevice() && from.IsDevice();
    case cudaMemcpyDeviceToDevice:
      return to.IsDevice() && from.IsDevice();
    default:
      return kind == cudaMemcpyDefault && (to.IsDevice() || from.IsDevice());
  }
}

// Runs an enqueued copy.
cudaError_t CopyNow(void* begin, const Side& to, const Side& from) {
  for (const Side* const side : {&to, &from}) {
    if (side->IsStillThere()) continue;
    // A stream's error has no message, so stderr gets it.
    std::fprintf(stderr, "emulated GPU: %zu bytes at %p were freed before they were copied\n",
                 side->bytes, side->begin);
    return cudaErrorIllegalAddress;
  }
  if (CountCopy(from.bytes * (to.IsDevice() && from.IsDevice() ? 2 : 1))) return cudaSuccess;
  const MemoryAccess access(TheRuntime().memory, to.Devices() | from.Devices());
  std::memmove(begin, from.begin, from.bytes);
  return cudaSuccess;
}

// Removes all streams, events, work and memory of the device, and its error.
void ResetDevice(int device) {
  Runtime& runtime = TheRuntime();
  std::erase_if(runtime.orphans, [&](const auto& queue) {
    if (queue->device() != device) return false;
    queue->Drop();
    return true;
  });
  for (auto stream = runtime.streams.begin(); stream != runtime.streams.end();) {
    if ((*stream)->queue->device() == device) {
      (*stream)->queue->Drop();  // Events may share the queue.
      delete *stream;
      stream = runtime.streams.erase(stream);
    } else {
      ++stream;
    }
  }
  for (auto event = runtime.events.begin(); event != runtime.events.end();) {
    if ((*event)->device == device) {
      delete *event;
      event = runtime.events.erase(event);
    } else {
      ++event;
    }
  }
  runtime.memory.FreeAll(device);
  runtime.contexts[static_cast<size_t>(device)].error = cudaSuccess;
}

}  // namespace

Runtime::Runtime()
    : devices(CountDevices()),
      memory(devices == 0 ? 1 : devices, Counted() ? EmulatedCard().memory_bytes : kMemoryBytes,
             Counted() ? Keeps::kNothing : Keeps::kValues),
      contexts(kDevicesMax) {
  for (size_t i = 0; i < contexts.size(); ++i) {
    contexts[i] = {.device = static_cast<int>(i), .memory = &memory};
  }
}

Runtime& TheRuntime() {
  static Runtime* const runtime = new Runtime;  // Never deleted: static objects may use it at exit.
  return *runtime;
}

int CurrentDevice() { return current_device; }

bool IsForbiddenNow() {
  bool found = false;
  for (const cudaStream_t stream : TheRuntime().streams) {
    if (!IsRecorded(stream) || stream->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool mine = stream->recorder == std::this_thread::get_id();
    if (stream->mode == cudaStreamCaptureModeThreadLocal && !mine) continue;
    stream->invalidated = true;
    found = true;
  }
  return found;
}

cudaError_t RunAll(int device) {
  Runtime& runtime = TheRuntime();
  for (const cudaStream_t stream : runtime.streams) {
    if (stream->queue->device() == device) stream->queue->RunAll();
  }
  for (const std::shared_ptr<StreamQueue>& queue : runtime.orphans) {
    if (queue->device() == device) queue->RunAll();
  }
  std::erase_if(runtime.orphans, [](const auto& queue) { return queue->HasPassed(queue->end()); });
  return ErrorOf(device);
}

cudaError_t SetLastError(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

bool IsDeviceMemory(int device, const void* begin, size_t bytes) {
  return TheRuntime().memory.Holds(device, begin, bytes);
}

cudaError_t Enqueue(cudaStream_t stream, Work work) {
  const Lock lock(TheRuntime().mutex);
  if (const cudaError_t error = ErrorOf(current_device); error != cudaSuccess) return error;
  StreamQueue* const queue = QueueOf(stream);
  if (queue == nullptr || queue->device() != current_device) return cudaErrorInvalidResourceHandle;
  if (IsRecorded(stream)) {
    stream->recorded->push_back(std::move(work));
  } else {
    queue->Add(std::move(work));
  }
  return cudaSuccess;
}

extern "C" {  // With C linkage a function is CUDA's in any namespace.

// ---------------------------------------------------------------- errors, versions, devices

// An error of the current device stays, so it is the last error again and again.
cudaError_t cudaPeekAtLastError() {
  const Lock lock(TheRuntime().mutex);
  SetLastError(ErrorOf(current_device));
  return last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "an error of the emulated GPU";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheRuntime().devices;
  return SetLastError(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

// Sets the device even if it returns an error of the device's work.
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= TheRuntime().devices) return SetLastError(cudaErrorInvalidDevice);
  current_device = device;
  return Guarded([] { return cudaSuccess; });
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

// Drops enqueued work: it never runs.
cudaError_t cudaDeviceReset() {
  const Lock lock(TheRuntime().mutex);
  ResetDevice(current_device);
  last_error = cudaSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= TheRuntime().devices) return SetLastError(cudaErrorInvalidDevice);
  const Card& card = EmulatedCard();
  *properties = cudaDeviceProp{};
  std::strncpy(properties->name, card.name, sizeof(properties->name) - 1);
  properties->major = card.capability_major;
  properties->minor = card.capability_minor;
  properties->multiProcessorCount = card.multiprocessors;
  properties->totalGlobalMem = TheRuntime().memory.TotalBytes();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= TheRuntime().devices) return SetLastError(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = EmulatedCard().capability_major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = EmulatedCard().capability_minor;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = EmulatedCard().multiprocessors;
      return cudaSuccess;
    default:
      return SetLastError(cudaErrorNotSupported);
  }
}

// ---------------------------------------------------------------- memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Guarded([&] {
    *free = TheRuntime().memory.FreeBytes(current_device);
    *total = TheRuntime().memory.TotalBytes();
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return Guarded([&] {
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    *memory = bytes == 0 ? nullptr : TheRuntime().memory.Allocate(current_device, bytes);
    return *memory == nullptr && bytes > 0 ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

// Waits for the device that owns the memory, like the real function.
cudaError_t cudaFree(void* memory) {
  return Guarded([&] {
    if (memory == nullptr) return cudaSuccess;
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    const std::optional<int> place = TheRuntime().memory.PlaceOf(memory, 1);
    if (!place.has_value() || *place == kPinned) return cudaErrorInvalidValue;
    const cudaError_t error = RunAll(*place);
    const bool freed = TheRuntime().memory.Free(*place, memory);
    return freed ? error : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return Guarded([&] {
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    *memory = TheRuntime().memory.Allocate(kPinned, bytes == 0 ? 1 : bytes);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

// Does not wait: work that uses the memory later fails.
cudaError_t cudaFreeHost(void* memory) {
  return Guarded([&] {
    if (memory == nullptr) return cudaSuccess;
    if (IsForbiddenNow()) return cudaErrorStreamCaptureUnsupported;
    return TheRuntime().memory.Free(kPinned, memory) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Guarded([&] {
    if (bytes == 0) return cudaSuccess;
    const Side target = SideOf(to, bytes);
    const Side source = SideOf(from, bytes);
    if (!Fits(kind, target, source)) return cudaErrorInvalidValue;
    const bool pageable = target.IsPageable() || source.IsPageable();
    if (pageable && QueueOf(stream) != nullptr && IsRecorded(stream)) return Invalidate(stream);
    const cudaError_t error =
        Enqueue(stream, [to, target, source] { return CopyNow(to, target, source); });
    // A copy of pageable memory uses the driver's buffer, so it is done when the call returns.
    return error != cudaSuccess || !pageable ? error : stream->queue->RunAll();
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return Guarded([&] {
    const auto is_there = [device = current_device, memory, bytes] {
      return IsDeviceMemory(device, memory, bytes);
    };
    if (!is_there()) return cudaErrorInvalidValue;
    return Enqueue(stream, [is_there, memory, value, bytes] {
      if (!is_there()) return cudaErrorIllegalAddress;
      if (CountCopy(bytes)) return cudaSuccess;
      std::memset(memory, value, bytes);
      return cudaSuccess;
    });
  });
}

}  // extern "C"
}  // namespace capstan::kernels::cuda::emulation
