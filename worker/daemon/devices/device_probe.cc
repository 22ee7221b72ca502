#include "worker/daemon/devices/device_probe.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::worker {
namespace {

// 12080 -> "12.8".
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string FirstLine(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

}  // namespace

Devices DeviceProbe::Find() {
  left_out_.clear();
  Devices devices;
  absl::StatusOr<std::unique_ptr<CudaDriver>> driver = options_.open_driver();
  if (!driver.ok()) {
    devices.unusable = absl::StrCat("no CUDA driver (", driver.status().message(), ")");
    return devices;
  }
  devices.driver_version = FirstLine(options_.driver_version_file);
  devices.unusable = FindGpus(**driver, devices);
  if (devices.unusable.empty()) devices.unusable = options_.backend_problem();
  return devices;
}

std::string DeviceProbe::FindGpus(CudaDriver& driver, Devices& devices) {
  const absl::StatusOr<int> version = driver.CudaVersion();
  if (!version.ok()) return absl::StrCat("no CUDA driver (", version.status().message(), ")");
  devices.cuda_version = VersionText(*version);
  if (*version < kCudaVersionMin) {
    return absl::StrCat("the CUDA driver is too old: it supports CUDA ", devices.cuda_version,
                        ", expected at least ", VersionText(kCudaVersionMin));
  }
  const absl::Status started = driver.Start();
  if (!started.ok()) return absl::StrCat("the CUDA driver does not start: ", started.message());
  const absl::StatusOr<int> count = driver.GpuCount();
  if (!count.ok())
    return absl::StrCat("the CUDA driver does not answer: ", count.status().message());
  for (int index = 0; index < *count; ++index) {
    absl::StatusOr<Gpu> gpu = driver.Describe(index);
    if (gpu.ok()) {
      devices.gpus.push_back(*std::move(gpu));
    } else {
      left_out_.push_back(absl::StrCat("GPU ", index, ": ", gpu.status().message()));
    }
  }
  if (*count == 0) return "no GPU";
  if (devices.gpus.empty()) return absl::StrCat("no GPU answers: ", absl::StrJoin(left_out_, "; "));
  return "";
}

}  // namespace capstan::worker
