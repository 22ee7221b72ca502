// StepWatch: measures spans of a step for a StepObserver: by its clock on the host, by events on a
// device's streams.
//
// A device's times are put on the observer's clock by an event that the host awaits as the step
// begins. Without an observer, or in a step that it does not watch, nothing is done.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_WATCH_H_
#define CAPSTAN_WORKER_TRAINING_STEP_WATCH_H_

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
#include "worker/training/step_observer.h"

namespace capstan::worker {

class StepWatch {
 public:
  using Part = StepObserver::Part;

  // Both may be null, and outlive this. `device`: null on the host.
  StepWatch(kernels::DeviceBackend* device, StepObserver* observer)
      : device_(device), observer_(observer) {}

  // Errors, here and below: those of the device.
  absl::Status BeginStep();
  bool watching() const { return watching_; }
  // What is run, on the host or on `stream`, until End of that stream is one span.
  absl::Status Begin(kernels::Stream stream, Part part, const std::function<std::string()>& what);
  absl::Status End(kernels::Stream stream);
  void GiveUp() { watching_ = false; }  // The step does not go on.
  // All work has ended: tells the observer what it has not been told.
  absl::Status EndStep();

 private:
  struct Span {
    Part part = Part::kForward;
    std::string what;
    Instant begin;                                            // Host.
    kernels::DeviceEvent *begun = nullptr, *ended = nullptr;  // Device.
  };
  // An event that is recorded on `stream` now.
  absl::StatusOr<kernels::DeviceEvent*> Mark(kernels::Stream stream);
  absl::StatusOr<Instant> TimeOf(kernels::DeviceEvent& event);

  kernels::DeviceBackend* const device_;
  StepObserver* const observer_;
  bool watching_ = false;
  std::array<Span, kernels::kStreamCount> open_;               // By stream.
  std::vector<Span> ended_;                                    // Device: of this step.
  std::vector<std::unique_ptr<kernels::DeviceEvent>> events_;  // A pool.
  size_t events_used_ = 0;
  kernels::DeviceEvent* origin_ = nullptr;
  Instant origin_time_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_WATCH_H_
