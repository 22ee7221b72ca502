#include "worker/training/step/step_watch.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/status/status_macros.h"

namespace capstan::worker {

absl::Status StepWatch::BeginStep() {
  watching_ = observer_ != nullptr && observer_->Watches();
  ended_.clear();
  events_used_ = 0;
  if (!watching_ || device_ == nullptr) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(origin_, Mark(kernels::Stream::kCompute));
  CAPSTAN_RETURN_IF_ERROR(device_->Await(*origin_));
  origin_time_ = observer_->Now();
  return absl::OkStatus();
}

absl::Status StepWatch::Begin(kernels::Stream stream, Part part,
                              const std::function<std::string()>& what) {
  if (!watching_) return absl::OkStatus();
  Span& span = open_[static_cast<size_t>(stream)];
  span = {.part = part, .what = what()};
  if (device_ == nullptr) {
    span.begin = observer_->Now();
    return absl::OkStatus();
  }
  CAPSTAN_ASSIGN_OR_RETURN(span.begun, Mark(stream));
  return absl::OkStatus();
}

absl::Status StepWatch::End(kernels::Stream stream) {
  if (!watching_) return absl::OkStatus();
  Span& span = open_[static_cast<size_t>(stream)];
  if (device_ == nullptr) {
    observer_->Ran(span.part, span.what, span.begin, observer_->Now());
    return absl::OkStatus();
  }
  CAPSTAN_ASSIGN_OR_RETURN(span.ended, Mark(stream));
  ended_.push_back(std::move(span));
  return absl::OkStatus();
}

absl::Status StepWatch::EndStep() {
  if (!std::exchange(watching_, false)) return absl::OkStatus();
  for (const Span& span : ended_) {
    CAPSTAN_ASSIGN_OR_RETURN(const Instant begin, TimeOf(*span.begun));
    CAPSTAN_ASSIGN_OR_RETURN(const Instant end, TimeOf(*span.ended));
    observer_->Ran(span.part, span.what, begin, std::max(begin, end));
  }
  return absl::OkStatus();
}

absl::StatusOr<kernels::DeviceEvent*> StepWatch::Mark(kernels::Stream stream) {
  if (events_used_ == events_.size()) {
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<kernels::DeviceEvent> event,
                             device_->MakeEvent(kernels::EventUse::kTiming));
    events_.push_back(std::move(event));
  }
  kernels::DeviceEvent* const event = events_[events_used_++].get();
  CAPSTAN_RETURN_IF_ERROR(device_->Record(*event, stream));
  return event;
}

absl::StatusOr<Instant> StepWatch::TimeOf(kernels::DeviceEvent& event) {
  CAPSTAN_ASSIGN_OR_RETURN(const double seconds, device_->SecondsBetween(*origin_, event));
  return origin_time_ + absl::Seconds(seconds);
}

}  // namespace capstan::worker
