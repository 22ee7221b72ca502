// StepWatch: measures spans of a step for a StepObserver: with its clock on the host, with events
// on a device's streams.
//
// The host awaits an event when the step begins, to convert a device's times to the observer's
// clock. If there is no observer, or it does not watch the step, nothing is done.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_STEP_WATCH_H_
#define CAPSTAN_WORKER_TRAINING_STEP_STEP_WATCH_H_

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time/instant.h"
#include "kernels/device_backend.h"
#include "worker/training/step/step_observer.h"

namespace capstan::worker {

class StepWatch {
 public:
  using Part = StepObserver::Part;

  // Both may be null, and outlive this object. `device`: null on the host.
  StepWatch(kernels::DeviceBackend* device, StepObserver* observer)
      : device_(device), observer_(observer) {}

  // Errors, here and below: those of the device.
  absl::Status BeginStep();
  bool watching() const { return watching_; }
  // Begins a span: all that runs on the host, or on `stream`, until End of that stream.
  absl::Status Begin(kernels::Stream stream, Part part, const std::function<std::string()>& what);
  absl::Status End(kernels::Stream stream);
  void GiveUp() { watching_ = false; }  // The step is given up.
  // Called when all work has ended: reports the spans that the observer has not got yet.
  absl::Status EndStep();

 private:
  struct Span {
    Part part = Part::kForward;
    std::string what;
    Instant begin;                                            // On the host.
    kernels::DeviceEvent *begun = nullptr, *ended = nullptr;  // On a device.
  };
  // Records an event on `stream` now, and returns it.
  absl::StatusOr<kernels::DeviceEvent*> Mark(kernels::Stream stream);
  absl::StatusOr<Instant> TimeOf(kernels::DeviceEvent& event);

  kernels::DeviceBackend* const device_;
  StepObserver* const observer_;
  bool watching_ = false;
  std::array<Span, kernels::kStreamCount> open_;               // Indexed by stream.
  std::vector<Span> ended_;                                    // Device: this step's ended spans.
  std::vector<std::unique_ptr<kernels::DeviceEvent>> events_;  // A pool.
  size_t events_used_ = 0;
  kernels::DeviceEvent* origin_ = nullptr;
  Instant origin_time_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_STEP_WATCH_H_
