// libfake_cuda.so: a plugin whose GPUs are FakeDevices. Real daemons load it (CAPSTAN_CUDA_PLUGIN)
// on machines without GPUs. Environment variables:
//
//   CAPSTAN_FAKE_LOST=1:200        GPU 1 is lost after 200 ops of each process
//   CAPSTAN_FAKE_MEMORY=1:1000000  GPU 1 has this many bytes
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/plugin_entry.h"
#include "kernels/testing/fake_device.h"

namespace capstan::kernels {
namespace {

// The value for GPU `index` in a variable of the form "<index>:<value>"; `otherwise` if there is
// none.
int64_t Said(const char* variable, int index, int64_t otherwise) {
  const char* const set = std::getenv(variable);
  if (set == nullptr) return otherwise;
  const std::string text = set, mine = std::to_string(index) + ":";
  return text.starts_with(mine) ? std::atoll(text.c_str() + mine.size()) : otherwise;
}

absl::StatusOr<std::unique_ptr<cuda::CudaBackend>> MakeFake(const cuda::CudaOptions& options) {
  FakeDevice::Options fake;
  fake.seed = kFakeDeviceOrders + static_cast<uint64_t>(options.device);
  fake.tensor_type = TensorTypeOf(options.compute);
  fake.index = options.device;
  fake.memory_bytes = Said("CAPSTAN_FAKE_MEMORY", options.device, fake.memory_bytes);
  fake.runs_until_lost = Said("CAPSTAN_FAKE_LOST", options.device, fake.runs_until_lost);
  return std::unique_ptr<cuda::CudaBackend>(std::make_unique<FakeDevice>(MakeCpuBackend(), fake));
}

}  // namespace
}  // namespace capstan::kernels

extern "C" __attribute__((visibility("default"))) void CapstanCudaOpen(
    capstan::kernels::cuda::PluginCall* call) {
  capstan::kernels::cuda::AnswerPluginCall(call, capstan::kernels::MakeFake);
}
