// Devices: the GPUs of a worker, and the device that a task needs. Types that are part of a durable
// state have a `serialize` member, in the form of scheduler/store/archive.h.
// Thread safety: values.
#ifndef CAPSTAN_COMMON_DEVICES_DEVICES_H_
#define CAPSTAN_COMMON_DEVICES_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace capstan {

struct Gpu {
  int index = 0;  // CUDA's number for it in the worker daemon, from 0.
  std::string name;
  int64_t memory_bytes = 0;
  int64_t memory_free_bytes = 0;   // 0: unknown.
  std::string compute_capability;  // "9.0".
  friend bool operator==(const Gpu&, const Gpu&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(index, name, memory_bytes, memory_free_bytes, compute_capability);
  }
};

// The devices of a worker as found when the daemon started.
struct Devices {
  std::vector<Gpu> gpus;
  std::string driver_version;  // The kernel driver: "570.86.15". Empty: unknown.
  std::string cuda_version;    // The newest that the driver supports: "12.8". Empty: no driver.
  std::string unusable;        // Why no task can use a GPU here. Empty: tasks can use them.
  friend bool operator==(const Devices&, const Devices&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(gpus, driver_version, cuda_version, unusable);
  }
};

// The device that each task of a job needs.
struct DeviceNeed {
  enum class Kind {
    kCpu,
    kGpu,
    kAny,  // GPUs if its worker has that many free ones, else the CPU.
  };
  friend constexpr Kind LastOf(Kind) { return Kind::kAny; }
  Kind kind = Kind::kCpu;
  int gpus = 0;    // kGpu, kAny: >= 1, for itself alone. kCpu: 0.
  int index = -1;  // kGpu with gpus 1: the GPU of that index. -1: any.
  friend bool operator==(const DeviceNeed&, const DeviceNeed&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(kind, gpus, index);
  }
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DEVICES_DEVICES_H_
