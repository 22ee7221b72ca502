#include "worker/training/step/step_exchange.h"

#include <utility>

#include "common/status/status_macros.h"

namespace capstan::worker {

StepExchange::StepExchange(std::vector<StepMemory*> members, kernels::Collective* collective,
                           int64_t parameter_count)
    : members_(std::move(members)), collective_(collective), parameter_count_(parameter_count) {}

void StepExchange::Begin(Parameters which) {
  uploaded_end_ = which == Parameters::kSame ? parameter_count_ : 0;
  gradient_from_ = parameter_count_;
}

std::vector<float*> StepExchange::Arrays(Place place, int64_t begin) const {
  std::vector<float*> arrays;
  for (const StepMemory* member : members_) {
    arrays.push_back(reinterpret_cast<float*>(member->base(place)) + begin);
  }
  return arrays;
}

absl::Status StepExchange::NeedParameters(int64_t end) {
  if (end <= uploaded_end_) return absl::OkStatus();
  const int64_t begin = std::exchange(uploaded_end_, end);
  CAPSTAN_RETURN_IF_ERROR(members_[0]->UploadParameters(begin, end));
  if (collective_ != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(collective_->Broadcast(kernels::Stream::kUpload,
                                                   Arrays(Place::kParameters, begin), end - begin));
  }
  for (StepMemory* const member : members_) {
    CAPSTAN_RETURN_IF_ERROR(member->UseParameters(begin, end));
  }
  return absl::OkStatus();
}

absl::Status StepExchange::GradientDone(int64_t first) {
  if (first >= gradient_from_) return absl::OkStatus();
  const int64_t end = std::exchange(gradient_from_, first);
  for (StepMemory* const member : members_) {
    CAPSTAN_RETURN_IF_ERROR(member->GradientComputed(first, end));
  }
  if (collective_ != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(collective_->Reduce(kernels::Stream::kDownload,
                                                Arrays(Place::kGradient, first), end - first));
  }
  return members_[0]->TakeGradient(first, end);
}

}  // namespace capstan::worker
