// Converts errors of CUDA, cuBLASLt and cuDNN to absl::Status, with the library's name of each.
//
// cuBLASLt and cuDNN have no error code for a lost device, so these functions ask the CUDA runtime
// about the calling thread's current device. Thread safety: thread-safe.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_STATUS_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_STATUS_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan::kernels::cuda {

// Makes for example "launching relu: cudaErrorIllegalAddress: an illegal memory access was
// encountered". Clears the thread's last error.
//   kResourceExhausted   out of memory
//   kUnavailable         no driver, no device, the device is lost or taken
//   kInvalidArgument     no such device
//   kFailedPrecondition  not allowed while work is being recorded; the driver is too old; there is
//                        no kernel for this device
//   kInternal            all others
absl::Status FromCuda(cudaError_t error, absl::string_view what);
// Out of memory is kResourceExhausted, an operation that the library does not support
// kUnimplemented, all others are kInternal. All but kUnimplemented are passed through Explained,
// with the runtime's status of the calling thread's device.
absl::Status FromCublas(cublasStatus_t status, absl::string_view what);
absl::Status FromCudnn(cudnnStatus_t status, absl::string_view what);

// Combines a library's failure with the status of its device, asked right after it. Returns
// kUnavailable with both messages if `device` is kUnavailable, else the failure unchanged.
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

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_STATUS_H_
