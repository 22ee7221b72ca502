#include "kernels/graph_recorder.h"

#include <utility>

#include "common/status/status_macros.h"

namespace capstan::kernels {

absl::Status GraphRecorder::Run(const Step& step) {
  if (graph_ != nullptr) return graph_->Launch();
  // The first run is plain, because libraries load their kernels then, which cannot be recorded.
  if (!warm_) {
    CAPSTAN_RETURN_IF_ERROR(step());
    warm_ = true;
    return absl::OkStatus();
  }
  if (!reason_.empty()) return step();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = Record(step);
  if (!graph.ok()) {
    reason_ = std::string(graph.status().message());
    if (reason_.empty()) reason_ = graph.status().ToString();
    device_.CaptureRefused(reason_);
    return step();
  }
  graph_ = *std::move(graph);
  return graph_->Launch();
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> GraphRecorder::Record(const Step& step) {
  CAPSTAN_RETURN_IF_ERROR(device_.BeginCapture());
  const absl::Status enqueued = step();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device_.EndCapture();  // Also if it failed.
  CAPSTAN_RETURN_IF_ERROR(enqueued);
  return graph;
}

void GraphRecorder::Reset() {
  graph_.reset();
  reason_.clear();
  warm_ = false;
}

}  // namespace capstan::kernels
