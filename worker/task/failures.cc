#include "worker/task/failures.h"

#include <string>

#include "worker/task/computation/lost_gpus.h"

namespace capstan::worker {
namespace {

v1::Failure::Reason ReasonOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return v1::Failure::USER_ERROR;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return v1::Failure::BAD_DATA;
    case absl::StatusCode::kOutOfRange:
      return v1::Failure::DIVERGED;
    case absl::StatusCode::kResourceExhausted:
      return v1::Failure::OUT_OF_MEMORY;
    case absl::StatusCode::kDeadlineExceeded:
      return v1::Failure::HANG;
    default:
      return v1::Failure::INTERNAL;
  }
}

}  // namespace

v1::Failure FailureOf(const absl::Status& status, FailedAt at) {
  v1::Failure failure;
  const bool device = at == FailedAt::kComputingOnGpu && absl::IsUnavailable(status);
  failure.set_reason(device                          ? v1::Failure::DEVICE_LOST
                     : at == FailedAt::kWritingModel ? v1::Failure::OUTPUT_FAILED
                                                     : ReasonOf(status.code()));
  failure.set_message(std::string(status.message()));
  if (!device) return failure;
  for (const int gpu : LostGpusOf(status)) failure.add_gpus_lost(gpu);
  return failure;
}

}  // namespace capstan::worker
