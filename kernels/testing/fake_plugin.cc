// libfake_cuda.so: a plugin whose GPU is a FakeDevice, so that real daemons can be given one
// (CAPSTAN_CUDA_PLUGIN) where there is none.
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/plugin_door.h"
#include "kernels/testing/fake_device.h"

namespace capstan::kernels {
namespace {

absl::StatusOr<std::unique_ptr<cuda::CudaBackend>> MakeFake(const cuda::CudaOptions& options) {
  return std::unique_ptr<cuda::CudaBackend>(std::make_unique<FakeDevice>(
      MakeCpuBackend(), FakeDevice::Options{.seed = kFakeDeviceOrders,
                                            .tensor_type = TensorTypeOf(options.compute)}));
}

}  // namespace
}  // namespace capstan::kernels

extern "C" __attribute__((visibility("default"))) void CapstanCudaOpen(
    capstan::kernels::cuda::PluginCall* call) {
  capstan::kernels::cuda::AnswerPluginCall(call, capstan::kernels::MakeFake);
}
