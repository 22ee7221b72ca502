// GraphRecorder: runs a step again and again, from the second run on as one recorded graph if the
// device can record it. The host then makes one launch instead of hundreds. The trainer
// (worker/training) keeps one for each part of a training step.
//
//   GraphRecorder recorder(device);
//   for (...) CAPSTAN_RETURN_IF_ERROR(recorder.Run([&] { return EnqueueStep(); }));
//
//   FRESH --run plainly--> WARM --recorded--> GRAPH --launch--> GRAPH
//                            \--refused--> PLAIN (reason()) --run plainly--> PLAIN
//
// A graph repeats the recorded calls with the same arguments: the same memory and scale. Call
// Reset() when these change. Thread safety: thread-compatible.
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
  // Enqueues the whole sequence. Errors: kInternal and others of the device.
  virtual absl::Status Launch() = 0;
};

// A device that can record. Calls between BeginCapture and EndCapture are recorded and do not run.
class GraphDevice {
 public:
  virtual ~GraphDevice() = default;
  // Errors: kFailedPrecondition  already recording.
  virtual absl::Status BeginCapture() = 0;
  // Ends the recording, also if it fails.
  // Errors: kFailedPrecondition  nothing is being recorded, or a call in it cannot be recorded.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;

  // GraphRecorder reports here that a step could not be recorded and therefore runs more slowly. An
  // override may report it further.
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

  // `device` outlives the recorder.
  explicit GraphRecorder(GraphDevice& device) : device_(device) {}

  // Enqueues the step once. A step that cannot be recorded runs plainly, now and in later calls.
  // Errors: those of the step if it runs plainly; those of DeviceGraph::Launch.
  absl::Status Run(const Step& step);

  bool recorded() const { return graph_ != nullptr; }
  // Why the step could not be recorded; empty if it was recorded, or if that was not tried yet.
  const std::string& reason() const { return reason_; }
  void Reset();  // Back to FRESH: drops the graph and the reason.

 private:
  absl::StatusOr<std::unique_ptr<DeviceGraph>> Record(const Step& step);

  GraphDevice& device_;
  bool warm_ = false;
  std::string reason_;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_GRAPH_RECORDER_H_
