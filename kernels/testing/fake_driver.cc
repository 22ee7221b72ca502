// A fake libcuda.so.1: a CUDA driver that reports one GPU of 16 GiB, or as many GPUs as the
// environment variable CAPSTAN_FAKE_GPUS says. It has only the functions that
// worker/daemon/devices/cuda_driver.h calls. With libfake_cuda.so, real workers train on fakes.
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kCudaVersion = 13000;
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.
constexpr size_t kBytes = size_t{16} << 30;

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return 0;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return 0;
}
int cuDeviceGetCount(int* count) {
  const char* const set = std::getenv("CAPSTAN_FAKE_GPUS");
  *count = set == nullptr ? 1 : std::atoi(set);
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "fake GPU", static_cast<size_t>(bytes));
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kBytes;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == kCapabilityMajor ? 9 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = nullptr;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = kBytes;
  return 0;
}

}  // extern "C"
