// CudaDriver: the few calls of NVIDIA's driver that tell which GPUs there are.
//
// OpenCudaDriver loads libcuda.so.1 when it is called, so that no program needs CUDA to be linked
// or started. Tests have a driver of their own.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_DAEMON_CUDA_DRIVER_H_
#define CAPSTAN_WORKER_DAEMON_CUDA_DRIVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/devices/devices.h"

namespace capstan::worker {

class CudaDriver {
 public:
  virtual ~CudaDriver() = default;
  // The CUDA version that it supports, as CUDA counts: 13000 is 13.0.
  virtual absl::StatusOr<int> CudaVersion() = 0;
  // Makes the driver ready; the calls below come after it.
  // Errors: kUnavailable  the driver's own, by name: CUDA_ERROR_NO_DEVICE and the like.
  virtual absl::Status Start() = 0;
  virtual absl::StatusOr<int> GpuCount() = 0;
  // REQUIRES: 0 <= index < GpuCount(). Free memory is unknown (0) where it cannot be asked for.
  // Errors: kUnavailable  as Start.
  virtual absl::StatusOr<Gpu> Describe(int index) = 0;
};

// Errors: kNotFound  the library is not there, cannot be loaded, or lacks a call; says which.
absl::StatusOr<std::unique_ptr<CudaDriver>> OpenCudaDriver(const char* library = "libcuda.so.1");

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_CUDA_DRIVER_H_
