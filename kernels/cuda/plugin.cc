// libcapstan_cuda.so's only door; plugin_abi.h says what passes through it.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/plugin_abi.h"

using capstan::kernels::cuda::CudaBackend;
using capstan::kernels::cuda::kPluginMessageBytes;
using capstan::kernels::cuda::kPluginVersion;
using capstan::kernels::cuda::PluginCall;

extern "C" __attribute__((visibility("default"))) void CapstanCudaOpen(PluginCall* call) {
  call->plugin_version = kPluginVersion;
  if (call->caller_version != kPluginVersion) return;
  absl::StatusOr<std::unique_ptr<CudaBackend>> backend =
      capstan::kernels::cuda::MakeCudaBackend(call->options);
  call->status_code = static_cast<int32_t>(backend.status().code());
  const absl::string_view message = backend.status().message();
  const size_t length = std::min<size_t>(message.size(), kPluginMessageBytes - 1);
  std::copy_n(message.data(), length, call->message);
  call->message[length] = 0;
  if (backend.ok()) call->backend = backend->release();
}
