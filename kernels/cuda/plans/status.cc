#include "kernels/cuda/plans/status.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace capstan::kernels::cuda {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorSystemNotReady:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
#if CUDART_VERSION >= 13000
    // An error of the hardware, or of an access to another GPU over NVLink. Only NCCL makes such
    // accesses here.
    case cudaErrorContained:
#endif
      return absl::StatusCode::kUnavailable;
    case cudaErrorInvalidDevice:
      return absl::StatusCode::kInvalidArgument;
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Returns kUnavailable if the calling thread's device is lost, else OK. Every call of the runtime
// fails on a lost device; this one does not wait. (The thread's last error would not do: it may be
// old, or come from another device.)
absl::Status AskDevice() {
  const absl::Status asked = FromCuda(cudaStreamQuery(cudaStreamPerThread), "the device");
  return absl::IsUnavailable(asked) ? asked : absl::OkStatus();  // It may be busy.
}

}  // namespace

absl::Status FromCuda(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // Clears it: the next launch would report it as its own.
  return absl::Status(CodeOf(error), absl::StrCat(what, ": ", cudaGetErrorName(error), ": ",
                                                  cudaGetErrorString(error)));
}

absl::Status FromCublas(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const auto code = status == CUBLAS_STATUS_ALLOC_FAILED    ? absl::StatusCode::kResourceExhausted
                    : status == CUBLAS_STATUS_NOT_SUPPORTED ? absl::StatusCode::kUnimplemented
                                                            : absl::StatusCode::kInternal;
  const absl::Status failure(code, absl::StrCat(what, ": ", cublasLtGetStatusName(status), ": ",
                                                cublasLtGetStatusString(status)));
  return absl::IsUnimplemented(failure) ? failure : Explained(failure, AskDevice());
}

absl::Status FromCudnn(cudnnStatus_t status, absl::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  // Codes come in groups of a thousand: 3000 is "not supported".
  const int group = static_cast<int>(status) / 1000;
  const bool memory = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  const auto code = memory ? absl::StatusCode::kResourceExhausted
                    : group == static_cast<int>(CUDNN_STATUS_NOT_SUPPORTED) / 1000
                        ? absl::StatusCode::kUnimplemented
                        : absl::StatusCode::kInternal;
  std::array<char, 512> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  details.back() = 0;
  const absl::Status failure(code, absl::StrCat(what, ": ", cudnnGetErrorString(status),
                                                details[0] == 0 ? "" : ": ", details.data()));
  return absl::IsUnimplemented(failure) ? failure : Explained(failure, AskDevice());
}

absl::Status Explained(const absl::Status& failure, const absl::Status& device) {
  if (failure.ok() || !absl::IsUnavailable(device)) return failure;
  return absl::UnavailableError(absl::StrCat(failure.message(), "; ", device.message()));
}

}  // namespace capstan::kernels::cuda
