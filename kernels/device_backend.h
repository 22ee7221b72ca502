// DeviceBackend: a backend whose memory is not the host's. Besides ops it offers allocations that
// report why they fail, copies that run beside the arithmetic, and events that order the two.
//
// It has three streams. The work that is enqueued on one stream runs in order. Nothing orders the
// work of different streams, except events:
//
//   kUpload    ──copy──Record(e)                        Await(f): the host goes on
//   kCompute            Wait(e)──Run──Run──Record(d)        ▲
//   kDownload                              Wait(d)──copy──Record(f)
//
// All calls but Copy, Await and Synchronize return at once; Await and Synchronize return the faults
// of enqueued work.
// Thread safety: one thread at a time uses it; but unless the device is joined with others, Await
// may run beside other calls that do not record its event.
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

// Run and recorded graphs enqueue on kCompute.
enum class Stream { kCompute, kUpload, kDownload };
inline constexpr int kStreamCount = 3;

enum class EventUse {
  kOrder,
  kTiming,  // SecondsBetween can be asked when the event was reached.
};

// A point in the work of a stream. REQUIRES: it is freed before its backend.
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

  // The device's name among those of its host, for messages: "GPU 3".
  virtual std::string Label() const = 0;

  // Joins devices of one kind into a collective (collective.h), in which this device is member 0.
  //   members  this device first; they outlive the result
  // Errors: kInvalidArgument    this device is not the first, a device is of another kind, or one
  //                             is listed twice.
  //         kNotFound           this machine lacks the library for collectives.
  //         kUnavailable        devices do not reach each other, or do not answer.
  //         kResourceExhausted  a device has not enough memory for it.
  virtual absl::StatusOr<std::unique_ptr<Collective>> Join(
      absl::Span<DeviceBackend* const> members) = 0;

  // Errors: kUnavailable  the device does not answer.
  virtual absl::StatusOr<DeviceMemoryInfo> Memory() = 0;

  // Same as Allocate (backend.h), but a failure has a reason.
  // Errors: kInvalidArgument    bytes is negative.
  //         kResourceExhausted  not enough memory; the message has the bytes wanted and free.
  virtual absl::StatusOr<void*> TryAllocate(int64_t bytes) = 0;

  // Allocates page-locked host memory, for copies that do not block. Errors: as TryAllocate.
  virtual absl::StatusOr<void*> AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // Enqueues a copy between device memory and pinned memory, or within device memory.
  // REQUIRES: until the copy is done, neither side is freed and the host does not touch its side.
  virtual absl::Status CopyAsync(Stream stream, void* to, const void* from, int64_t bytes) = 0;

  // Sets device memory to 0, on kCompute. Errors: kInvalidArgument  bytes is negative.
  virtual absl::Status Zero(void* memory, int64_t bytes) = 0;

  // to[i] = from[i], rounded to the nearest value, ties to even. Types: fp32, bf16, fp16.
  virtual absl::Status Convert(Stream stream, const TensorView& from, const TensorView& to) = 0;

  // to[i] = table[i % channels, from[i]], rounded as by Convert. It turns the bytes of images into
  // numbers.
  //   from   [to.count] bytes in device memory
  //   table  [channels, 256] fp32 in device memory
  // Errors: kInvalidArgument  channels is not positive, or `to` has a type that Convert lacks.
  virtual absl::Status LookUp(Stream stream, const void* from, const float* table, int64_t channels,
                              const TensorView& to) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent(
      EventUse use = EventUse::kOrder) = 0;
  // Puts the event behind all work that is on `stream` now; it is reached once that work is done.
  virtual absl::Status Record(DeviceEvent& event, Stream stream) = 0;
  // All work that is enqueued on `stream` from now on runs after the event.
  // REQUIRES: the event was recorded.
  virtual absl::Status Wait(Stream stream, DeviceEvent& event) = 0;
  // The host waits for the event. REQUIRES: it was recorded. Errors: those of the enqueued work.
  virtual absl::Status Await(DeviceEvent& event) = 0;
  // The time from one event to another; negative if `to` was reached first.
  // Errors: kFailedPrecondition  one of them is not for kTiming, or was not reached yet.
  virtual absl::StatusOr<double> SecondsBetween(DeviceEvent& from, DeviceEvent& to) = 0;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_DEVICE_BACKEND_H_
