// DeviceBackend: a backend whose memory is not the host's, and what its user needs besides ops:
// memory with a reason when there is none, copies beside the arithmetic, and events between them.
//
// Three streams. What is enqueued on one runs in order; streams know nothing of each other unless
// an event says so:
//
//   kUpload    ──copy──Record(e)                        Await(f): the host goes on
//   kCompute            Wait(e)──Run──Run──Record(d)        ▲
//   kDownload                              Wait(d)──copy──Record(f)
//
// All calls but Copy, Await and Synchronize return at once; faults of what was enqueued surface at
// Await or Synchronize. Thread safety: used by one thread at a time.
#ifndef CAPSTAN_KERNELS_DEVICE_BACKEND_H_
#define CAPSTAN_KERNELS_DEVICE_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/graph_recorder.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {

// kCompute: where Run and recorded graphs go.
enum class Stream { kCompute, kUpload, kDownload };
inline constexpr int kStreamCount = 3;

enum class EventUse {
  kOrder,
  kTiming,  // SecondsBetween knows when it came.
};

// A point in the work of a stream. Freed before its backend.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

struct DeviceMemoryInfo {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

class Collective;

class DeviceBackend : public Backend, public GraphDevice {
 public:
  DeviceBackend* device() final { return this; }

  // "GPU 3": which one of its host's it is, for messages.
  virtual std::string Label() const = 0;

  // Joins devices of one kind into a collective (collective.h), of which this one is member 0.
  //   members  this one first; they outlive the result
  // Errors: kInvalidArgument    not this one first, a device of another kind, or one twice.
  //         kNotFound           this machine lacks the library for it.
  //         kUnavailable        devices do not reach each other, or do not answer.
  //         kResourceExhausted  a device has no memory for it.
  virtual absl::StatusOr<std::unique_ptr<Collective>> Join(
      absl::Span<DeviceBackend* const> members) = 0;

  // Errors: kUnavailable  the device does not answer.
  virtual absl::StatusOr<DeviceMemoryInfo> Memory() = 0;

  // Allocate (backend.h) with the reason.
  // Errors: kInvalidArgument  bytes is negative.
  //         kResourceExhausted  no memory; says how much was wanted and how much is free.
  virtual absl::StatusOr<void*> TryAllocate(int64_t bytes) = 0;

  // Page-locked host memory, for copies that do not block. Errors: as TryAllocate.
  virtual absl::StatusOr<void*> AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // Copies between device memory and pinned memory, or within the device's.
  // REQUIRES: both stay, and the host leaves its side alone, until the copy is done.
  virtual absl::Status CopyAsync(Stream stream, void* to, const void* from, int64_t bytes) = 0;

  // Clears device memory, on kCompute. Errors: kInvalidArgument  bytes is negative.
  virtual absl::Status Zero(void* memory, int64_t bytes) = 0;

  // to[i] = from[i], rounded to the nearest, ties to even. Types: fp32, bf16, fp16.
  virtual absl::Status Convert(Stream stream, const TensorView& from, const TensorView& to) = 0;

  // to[i] = table[i % channels, from[i]], rounded likewise: what bytes of images mean.
  //   from   [to.count], table [channels, 256] fp32; of the device
  // Errors: kInvalidArgument  channels is not positive, or another type than Convert's.
  virtual absl::Status LookUp(Stream stream, const void* from, const float* table, int64_t channels,
                              const TensorView& to) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent(
      EventUse use = EventUse::kOrder) = 0;
  // The event is where `stream` is now: it comes once all that was enqueued there is done.
  virtual absl::Status Record(DeviceEvent& event, Stream stream) = 0;
  // What is enqueued on `stream` from now on runs after the event. REQUIRES: it was recorded.
  virtual absl::Status Wait(Stream stream, DeviceEvent& event) = 0;
  // The host waits for the event. REQUIRES: it was recorded. Errors: faults of the work.
  virtual absl::Status Await(DeviceEvent& event) = 0;
  // From one event to another; negative if the second came first. REQUIRES: both are for kTiming
  // and have come. Errors: kFailedPrecondition  they are not, or have not.
  virtual absl::StatusOr<double> SecondsBetween(DeviceEvent& from, DeviceEvent& to) = 0;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_DEVICE_BACKEND_H_
