#include "worker/daemon/devices/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

// The types and calls of cuda.h that are used here; their binary form does not change.
using Result = int;
using Device = int;
using Context = void*;
constexpr Result kSuccess = 0;
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR.
constexpr int kCapabilityMinor = 76;

struct Calls {
  Result (*init)(unsigned flags) = nullptr;
  Result (*driver_get_version)(int* version) = nullptr;
  Result (*get_error_name)(Result error, const char** name) = nullptr;
  Result (*device_get_count)(int* count) = nullptr;
  Result (*device_get)(Device* device, int index) = nullptr;
  Result (*device_get_name)(char* name, int bytes, Device device) = nullptr;
  Result (*device_total_mem)(size_t* bytes, Device device) = nullptr;
  Result (*device_get_attribute)(int* value, int attribute, Device device) = nullptr;
  Result (*primary_context_retain)(Context* context, Device device) = nullptr;
  Result (*primary_context_release)(Device device) = nullptr;
  Result (*context_push)(Context context) = nullptr;
  Result (*context_pop)(Context* context) = nullptr;
  Result (*mem_get_info)(size_t* free, size_t* total) = nullptr;
};

template <typename Function>
absl::Status FindCall(void* library, const char* name, Function* call) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    return absl::NotFoundError(absl::StrCat("the CUDA driver has no ", name));
  }
  *call = reinterpret_cast<Function>(symbol);
  return absl::OkStatus();
}

absl::StatusOr<Calls> FindCalls(void* library) {
  Calls calls;
  const auto find = [library](const char* name, auto* call) {
    return FindCall(library, name, call);
  };
  CAPSTAN_RETURN_IF_ERROR(find("cuInit", &calls.init));
  CAPSTAN_RETURN_IF_ERROR(find("cuDriverGetVersion", &calls.driver_get_version));
  CAPSTAN_RETURN_IF_ERROR(find("cuGetErrorName", &calls.get_error_name));
  CAPSTAN_RETURN_IF_ERROR(find("cuDeviceGetCount", &calls.device_get_count));
  CAPSTAN_RETURN_IF_ERROR(find("cuDeviceGet", &calls.device_get));
  CAPSTAN_RETURN_IF_ERROR(find("cuDeviceGetName", &calls.device_get_name));
  CAPSTAN_RETURN_IF_ERROR(find("cuDeviceTotalMem_v2", &calls.device_total_mem));
  CAPSTAN_RETURN_IF_ERROR(find("cuDeviceGetAttribute", &calls.device_get_attribute));
  CAPSTAN_RETURN_IF_ERROR(find("cuDevicePrimaryCtxRetain", &calls.primary_context_retain));
  CAPSTAN_RETURN_IF_ERROR(find("cuDevicePrimaryCtxRelease_v2", &calls.primary_context_release));
  CAPSTAN_RETURN_IF_ERROR(find("cuCtxPushCurrent_v2", &calls.context_push));
  CAPSTAN_RETURN_IF_ERROR(find("cuCtxPopCurrent_v2", &calls.context_pop));
  CAPSTAN_RETURN_IF_ERROR(find("cuMemGetInfo_v2", &calls.mem_get_info));
  return calls;
}

class LoadedDriver final : public CudaDriver {
 public:
  explicit LoadedDriver(const Calls& calls) : calls_(calls) {}

  absl::StatusOr<int> CudaVersion() override {
    int version = 0;
    CAPSTAN_RETURN_IF_ERROR(Check("cuDriverGetVersion", calls_.driver_get_version(&version)));
    return version;
  }

  absl::Status Start() override { return Check("cuInit", calls_.init(0)); }

  absl::StatusOr<int> GpuCount() override {
    int count = 0;
    CAPSTAN_RETURN_IF_ERROR(Check("cuDeviceGetCount", calls_.device_get_count(&count)));
    return count;
  }

  absl::StatusOr<Gpu> Describe(int index) override {
    Device device = 0;
    std::array<char, 256> name{};
    size_t bytes = 0;
    int major = 0, minor = 0;
    CAPSTAN_RETURN_IF_ERROR(Check("cuDeviceGet", calls_.device_get(&device, index)));
    CAPSTAN_RETURN_IF_ERROR(
        Check("cuDeviceGetName",
              calls_.device_get_name(name.data(), static_cast<int>(name.size()) - 1, device)));
    CAPSTAN_RETURN_IF_ERROR(Check("cuDeviceTotalMem", calls_.device_total_mem(&bytes, device)));
    CAPSTAN_RETURN_IF_ERROR(Check("cuDeviceGetAttribute",
                                  calls_.device_get_attribute(&major, kCapabilityMajor, device)));
    CAPSTAN_RETURN_IF_ERROR(Check("cuDeviceGetAttribute",
                                  calls_.device_get_attribute(&minor, kCapabilityMinor, device)));
    return Gpu{.index = index,
               .name = name.data(),
               .memory_bytes = static_cast<int64_t>(bytes),
               .memory_free_bytes = FreeBytes(device),
               .compute_capability = absl::StrCat(major, ".", minor)};
  }

 private:
  // Asks in the device's primary context, which it retains for this and then releases.
  int64_t FreeBytes(Device device) {
    Context context = nullptr;
    if (calls_.primary_context_retain(&context, device) != kSuccess) return 0;
    size_t free = 0, total = 0;
    if (calls_.context_push(context) == kSuccess) {
      if (calls_.mem_get_info(&free, &total) != kSuccess) free = 0;
      calls_.context_pop(&context);
    }
    calls_.primary_context_release(device);
    return static_cast<int64_t>(free);
  }

  absl::Status Check(const char* call, Result result) {
    if (result == kSuccess) return absl::OkStatus();
    const char* name = nullptr;
    if (calls_.get_error_name(result, &name) != kSuccess || name == nullptr) {
      return absl::UnavailableError(absl::StrCat(call, " failed with error ", result));
    }
    return absl::UnavailableError(absl::StrCat(call, " failed with ", name));
  }

  const Calls calls_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDriver>> OpenCudaDriver(const char* library) {
  // The library is never closed: the driver keeps threads and state until the process ends.
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(why == nullptr ? library : why);
  }
  CAPSTAN_ASSIGN_OR_RETURN(const Calls calls, FindCalls(loaded));
  return std::make_unique<LoadedDriver>(calls);
}

}  // namespace capstan::worker
