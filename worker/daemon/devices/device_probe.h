// DeviceProbe: finds out which GPUs the tasks of this daemon can use, or why they can use none.
//
// The daemon calls Find once, when it starts. A GPU that does not answer is left out and named in
// left_out().
// Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_DAEMON_DEVICES_DEVICE_PROBE_H_
#define CAPSTAN_WORKER_DAEMON_DEVICES_DEVICE_PROBE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/devices/devices.h"
#include "worker/daemon/devices/cuda_driver.h"

namespace capstan::worker {

// The oldest CUDA version a driver may support: kernels/cuda is built with CUDA 13.
inline constexpr int kCudaVersionMin = 13000;

class DeviceProbe {
 public:
  struct Options {
    std::function<absl::StatusOr<std::unique_ptr<CudaDriver>>()> open_driver = [] {
      return OpenCudaDriver();
    };
    std::string driver_version_file = "/sys/module/nvidia/version";  // One line.
    // Returns why tasks have no backend for GPUs; empty: they have one. Called if there is a GPU.
    std::function<std::string()> backend_problem;
  };
  explicit DeviceProbe(Options options) : options_(std::move(options)) {}

  // Devices::unusable is the first of these reasons that applies: no driver, too old a driver, a
  // driver that does not start, no GPU, no GPU that answers, Options::backend_problem.
  Devices Find();

  // GPUs that Find left out, each with the driver's error.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  std::string FindGpus(CudaDriver& driver, Devices& devices);  // Returns why there are none.

  const Options options_;
  std::vector<std::string> left_out_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_DEVICES_DEVICE_PROBE_H_
