// Tests of errors of CUDA's libraries. This file defines two functions of the CUDA runtime, which
// hide those of the shared library and return what a test wants.
#include "kernels/cuda/plans/status.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <catch2/catch.hpp>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"

namespace {

// The answer of cudaStreamQuery, and the number of its calls.
cudaError_t of_stream = cudaSuccess;
int questions = 0;

void Answer(cudaError_t stream) {
  of_stream = stream;
  questions = 0;
}

}  // namespace

extern "C" {

// The thread's last error must not matter, since it may not be the current device's.
cudaError_t CUDARTAPI cudaPeekAtLastError() { return cudaErrorDevicesUnavailable; }
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t) {
  ++questions;
  return of_stream;
}

}  // extern "C"

namespace capstan::kernels::cuda::status_test {
namespace {

TEST_CASE("CUDA status: a lost or taken device is unavailable, a fault of ours is not",
          "[kernels][cuda]") {
  for (const cudaError_t lost :
       {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError,
        cudaErrorDevicesUnavailable, cudaErrorNoDevice}) {
    CHECK_STATUS(FromCuda(lost, "adding"), absl::StatusCode::kUnavailable, "adding: cudaError");
  }
  CHECK_STATUS(FromCuda(cudaErrorIllegalAddress, "adding"), absl::StatusCode::kInternal,
               "adding: cudaErrorIllegalAddress");
  CHECK_STATUS(FromCuda(cudaErrorMemoryAllocation, "adding"), absl::StatusCode::kResourceExhausted,
               "adding: ");
}

TEST_CASE("CUDA status: a library's failure on a device that works is its own", "[kernels][cuda]") {
  for (const cudaError_t busy : {cudaSuccess, cudaErrorNotReady, cudaErrorStreamCaptureUnsupported,
                                 cudaErrorIllegalAddress}) {
    Answer(busy);
    CHECK_STATUS(FromCudnn(CUDNN_STATUS_EXECUTION_FAILED, "convolving"),
                 absl::StatusCode::kInternal, "convolving: CUDNN_STATUS_EXECUTION_FAILED");
    CHECK_STATUS(FromCublas(CUBLAS_STATUS_EXECUTION_FAILED, "multiplying"),
                 absl::StatusCode::kInternal, "multiplying: CUBLAS_STATUS_EXECUTION_FAILED");
    CHECK(questions == 2);
  }
  CHECK_STATUS(FromCublas(CUBLAS_STATUS_ALLOC_FAILED, "multiplying"),
               absl::StatusCode::kResourceExhausted, "CUBLAS_STATUS_ALLOC_FAILED");
  REQUIRE_OK(FromCublas(CUBLAS_STATUS_SUCCESS, "multiplying"));
  REQUIRE_OK(FromCudnn(CUDNN_STATUS_SUCCESS, "convolving"));
}

TEST_CASE("CUDA status: a library's failure on a lost device is that device's", "[kernels][cuda]") {
  const char* const words = "EXECUTION_FAILED";
  const char* const device = "; the device: cudaErrorECCUncorrectable: ";
  Answer(cudaErrorECCUncorrectable);
  for (const absl::Status& status : {FromCudnn(CUDNN_STATUS_EXECUTION_FAILED, "convolving"),
                                     FromCublas(CUBLAS_STATUS_EXECUTION_FAILED, "convolving")}) {
    CHECK_STATUS(status, absl::StatusCode::kUnavailable, words);
    CHECK_STATUS(status, absl::StatusCode::kUnavailable, device);
  }
  // A lost device may seem to have no memory.
  CHECK_STATUS(FromCublas(CUBLAS_STATUS_ALLOC_FAILED, "multiplying"),
               absl::StatusCode::kUnavailable, device);
}

TEST_CASE("CUDA status: what a library does not support is said without asking the device",
          "[kernels][cuda]") {
  Answer(cudaErrorECCUncorrectable);
  CHECK_STATUS(FromCudnn(CUDNN_STATUS_NOT_SUPPORTED, "planning"), absl::StatusCode::kUnimplemented,
               "planning: CUDNN_STATUS_NOT_SUPPORTED");
  CHECK_STATUS(FromCublas(CUBLAS_STATUS_NOT_SUPPORTED, "planning"),
               absl::StatusCode::kUnimplemented, "planning: CUBLAS_STATUS_NOT_SUPPORTED");
  CHECK(questions == 0);
}

TEST_CASE("CUDA status: a failure is explained by a device that is lost, and by nothing else",
          "[kernels][cuda]") {
  const absl::Status failure = absl::InternalError("reducing: internal error");
  CHECK(Explained(failure, absl::OkStatus()) == failure);
  CHECK(Explained(failure, absl::InternalError("GPU 1: illegal address")) == failure);
  CHECK(Explained(failure, absl::UnavailableError("GPU 1: gone")) ==
        absl::UnavailableError("reducing: internal error; GPU 1: gone"));
  REQUIRE_OK(Explained(absl::OkStatus(), absl::UnavailableError("GPU 1: gone")));
}

}  // namespace
}  // namespace capstan::kernels::cuda::status_test
