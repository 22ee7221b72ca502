// GraphRecorder: runs a step, and from its second run on as one graph where the device can record
// it: then the host launches one thing instead of hundreds.
//
//   GraphRecorder recorder(device);
//   for (...) CAPSTAN_RETURN_IF_ERROR(recorder.Run([&] { return EnqueueStep(); }));
//
//   FRESH --run plainly--> WARM --recorded--> GRAPH --launch--> GRAPH
//                            \--refused--> PLAIN (reason()) --run plainly--> PLAIN
//
// What is recorded is replayed with the same arguments: the same memory and scale. Reset() when
// they change. Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_GRAPH_RECORDER_H_
#define CAPSTAN_KERNELS_GRAPH_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace capstan::kernels {

// A recorded sequence of work.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Enqueues all of it. Errors: kInternal and others of the device.
  virtual absl::Status Launch() = 0;
};

// What records. Between the two calls work is enqueued as usual and does not run.
class GraphDevice {
 public:
  virtual ~GraphDevice() = default;
  // Errors: kFailedPrecondition  already recording.
  virtual absl::Status BeginCapture() = 0;
  // Ends the recording, whether or not it can be used.
  // Errors: kFailedPrecondition  nothing is being recorded, or something in it cannot be.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;

  // A step was to be recorded and was not, so that it is slower: told to whom it may concern.
  virtual void CaptureRefused(const std::string& reason) {
    ++captures_refused_;
    last_refusal_ = reason;
  }
  int64_t captures_refused() const { return captures_refused_; }
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  int64_t captures_refused_ = 0;
  std::string last_refusal_;
};

class GraphRecorder {
 public:
  using Step = std::function<absl::Status()>;

  explicit GraphRecorder(GraphDevice& device) : device_(device) {}  // Outlives the recorder.

  // Enqueues the step once. A step that cannot be recorded runs plainly, now and later.
  // Errors: those of the step, run plainly; those of DeviceGraph::Launch.
  absl::Status Run(const Step& step);

  bool recorded() const { return graph_ != nullptr; }
  // Why the step runs plainly; empty if it does not, or has not been tried.
  const std::string& reason() const { return reason_; }
  void Reset();  // Forgets graph and reason.

 private:
  absl::StatusOr<std::unique_ptr<DeviceGraph>> Record(const Step& step);

  GraphDevice& device_;
  bool warm_ = false;
  std::string reason_;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_GRAPH_RECORDER_H_
