// CudaDriver: the few calls of NVIDIA's driver that report which GPUs there are.
//
// OpenCudaDriver loads libcuda.so.1 when it is called, so that no program needs CUDA to be linked
// or started. Tests use a fake driver.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_DAEMON_DEVICES_CUDA_DRIVER_H_
#define CAPSTAN_WORKER_DAEMON_DEVICES_CUDA_DRIVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/devices/devices.h"

namespace capstan::worker {

class CudaDriver {
 public:
  virtual ~CudaDriver() = default;
  // The newest CUDA version that it supports, in CUDA's numbering: 13000 is 13.0.
  virtual absl::StatusOr<int> CudaVersion() = 0;
  // Initializes the driver; must come before the calls below.
  // Errors: kUnavailable  the driver's error, by name, such as CUDA_ERROR_NO_DEVICE.
  virtual absl::Status Start() = 0;
  virtual absl::StatusOr<int> GpuCount() = 0;
  // REQUIRES: 0 <= index < GpuCount(). The free memory is 0 if the driver does not report it.
  // Errors: kUnavailable  as Start.
  virtual absl::StatusOr<Gpu> Describe(int index) = 0;
};

// Errors: kNotFound  the library is missing, cannot be loaded, or lacks a call; says which.
absl::StatusOr<std::unique_ptr<CudaDriver>> OpenCudaDriver(const char* library = "libcuda.so.1");

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_DEVICES_CUDA_DRIVER_H_
