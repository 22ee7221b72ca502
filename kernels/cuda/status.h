// Errors of CUDA, cuBLASLt and cuDNN as absl::Status, with the library's own name for each.
//
// A library that fails because its device is lost has no word for that: so the runtime is asked.
// Thread safety: thread-safe; that is the calling thread's current device.
#ifndef CAPSTAN_KERNELS_CUDA_STATUS_H_
#define CAPSTAN_KERNELS_CUDA_STATUS_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan::kernels::cuda {

// "launching relu: cudaErrorIllegalAddress: an illegal memory access was encountered".
//   kResourceExhausted   out of memory
//   kUnavailable         no driver, no device, the device is lost or taken
//   kInvalidArgument     no such device
//   kFailedPrecondition  not allowed while work is being recorded; the driver is too old
//   kInternal            all others
absl::Status FromCuda(cudaError_t error, absl::string_view what);
// Likewise; what a library does not support is kUnimplemented. Other failures are Explained by what
// the runtime says of the calling thread's device.
absl::Status FromCublas(cublasStatus_t status, absl::string_view what);
absl::Status FromCudnn(cudnnStatus_t status, absl::string_view what);

// A library's failure, beside what its device says itself, asked right after it: kUnavailable with
// the words of both if that is kUnavailable, else the failure as it is.
absl::Status Explained(const absl::Status& failure, const absl::Status& device);

}  // namespace capstan::kernels::cuda

#define CAPSTAN_CUDA_CHECK(expression, what)                                            \
  do {                                                                                  \
    if (const cudaError_t capstan_error = (expression); capstan_error != cudaSuccess) { \
      return ::capstan::kernels::cuda::FromCuda(capstan_error, what);                   \
    }                                                                                   \
  } while (false)
#define CAPSTAN_CUBLAS_CHECK(expression, what)                          \
  do {                                                                  \
    if (const cublasStatus_t capstan_error = (expression);              \
        capstan_error != CUBLAS_STATUS_SUCCESS) {                       \
      return ::capstan::kernels::cuda::FromCublas(capstan_error, what); \
    }                                                                   \
  } while (false)
#define CAPSTAN_CUDNN_CHECK(expression, what)                                                      \
  do {                                                                                             \
    if (const cudnnStatus_t capstan_error = (expression); capstan_error != CUDNN_STATUS_SUCCESS) { \
      return ::capstan::kernels::cuda::FromCudnn(capstan_error, what);                             \
    }                                                                                              \
  } while (false)

#endif  // CAPSTAN_KERNELS_CUDA_STATUS_H_
