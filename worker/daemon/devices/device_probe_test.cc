#include "worker/daemon/devices/device_probe.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <utility>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::worker::device_probe_test {
namespace {

// A machine as the fake driver reports it.
struct Machine {
  int version = 13010;
  absl::Status start;
  absl::Status count_error;
  std::vector<absl::StatusOr<Gpu>> gpus;
};

class FakeDriver final : public CudaDriver {
 public:
  explicit FakeDriver(Machine machine) : machine_(std::move(machine)) {}
  absl::StatusOr<int> CudaVersion() override { return machine_.version; }
  absl::Status Start() override { return machine_.start; }
  absl::StatusOr<int> GpuCount() override {
    if (!machine_.count_error.ok()) return machine_.count_error;
    return static_cast<int>(machine_.gpus.size());
  }
  absl::StatusOr<Gpu> Describe(int index) override {
    return machine_.gpus[static_cast<size_t>(index)];
  }

 private:
  const Machine machine_;
};

DeviceProbe ProbeOf(const Machine& machine, const std::string& backend_problem = "") {
  return DeviceProbe({.open_driver = [machine]() -> absl::StatusOr<std::unique_ptr<CudaDriver>> {
                        return std::make_unique<FakeDriver>(machine);
                      },
                      .driver_version_file = "/proc/none",
                      .backend_problem = [backend_problem] { return backend_problem; }});
}

const Gpu kFirst = {.index = 0,
                    .name = "NVIDIA H100 80GB HBM3",
                    .memory_bytes = 85'000'000'000,
                    .memory_free_bytes = 84'000'000'000,
                    .compute_capability = "9.0"};
const Gpu kSecond = {.index = 1, .name = "NVIDIA L4"};

TEST_CASE("Device probe: it finds every GPU and the versions of the driver", "[worker]") {
  const std::string file = testing::TestPath("driver_version");
  std::ofstream(file) << "580.82.07\n";
  DeviceProbe probe({.open_driver = []() -> absl::StatusOr<std::unique_ptr<CudaDriver>> {
                       return std::make_unique<FakeDriver>(Machine{.gpus = {kFirst, kSecond}});
                     },
                     .driver_version_file = file,
                     .backend_problem = [] { return ""; }});
  const Devices devices = probe.Find();
  CHECK(devices.gpus == std::vector<Gpu>{kFirst, kSecond});
  CHECK(devices.driver_version == "580.82.07");
  CHECK(devices.cuda_version == "13.1");
  CHECK(devices.unusable.empty());
  CHECK(probe.left_out().empty());
}

TEST_CASE("Device probe: whatever is missing is the reason why no task can use a GPU", "[worker]") {
  const auto why = [](const Machine& machine, const std::string& backend_problem = "") {
    DeviceProbe probe = ProbeOf(machine, backend_problem);
    return probe.Find().unusable;
  };
  CHECK(why({.version = 12090, .gpus = {kFirst}}) ==
        "the CUDA driver is too old: it supports CUDA 12.9, expected at least 13.0");
  CHECK(why({.start = absl::UnavailableError("cuInit failed with CUDA_ERROR_SYSTEM_NOT_READY"),
             .gpus = {kFirst}}) ==
        "the CUDA driver does not start: cuInit failed with CUDA_ERROR_SYSTEM_NOT_READY");
  CHECK(why({.count_error = absl::UnavailableError("x"), .gpus = {kFirst}}) ==
        "the CUDA driver does not answer: x");
  CHECK(why({}) == "no GPU");
  CHECK(why({}, "no backend") == "no GPU");
  CHECK(why({.gpus = {kFirst}}, "no backend") == "no backend");
}

TEST_CASE("Device probe: a GPU that does not answer is left out and named", "[worker]") {
  const absl::Status lost =
      absl::UnavailableError("cuDeviceGetName failed with CUDA_ERROR_UNKNOWN");
  DeviceProbe probe = ProbeOf({.gpus = {lost, kSecond}});
  CHECK(probe.Find().gpus == std::vector<Gpu>{kSecond});
  CHECK(probe.left_out() ==
        std::vector<std::string>{"GPU 0: cuDeviceGetName failed with CUDA_ERROR_UNKNOWN"});
  DeviceProbe none = ProbeOf({.gpus = {lost}});
  CHECK(none.Find().unusable ==
        "no GPU answers: GPU 0: cuDeviceGetName failed with CUDA_ERROR_UNKNOWN");
}

TEST_CASE("Device probe: without a driver it says what the loader said", "[worker]") {
  DeviceProbe probe({.open_driver = [] { return OpenCudaDriver("libnone.so.1"); }});
  const Devices devices = probe.Find();
  CHECK(devices.gpus.empty());
  CHECK(devices.cuda_version.empty());
  CHECK_THAT(devices.unusable, Catch::StartsWith("no CUDA driver (libnone.so.1: cannot open"));
}

TEST_CASE("CUDA driver: a library that is none lacks its calls by name", "[worker]") {
  CHECK_STATUS(OpenCudaDriver("libc.so.6"), absl::StatusCode::kNotFound,
               "the CUDA driver has no cuInit");
}

}  // namespace
}  // namespace capstan::worker::device_probe_test
