// Errors of CUDA, cuBLASLt and cuDNN as absl::Status, with the library's own name for each.
//
// Thread safety: pure functions.
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
// Likewise; what a library does not support is kUnimplemented.
absl::Status FromCublas(cublasStatus_t status, absl::string_view what);
absl::Status FromCudnn(cudnnStatus_t status, absl::string_view what);

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
