// libcapstan_cuda.so's only door; plugin_abi.h says what passes through it.
#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/plugin_abi.h"

namespace capstan::kernels::cuda {
namespace {

absl::Status Answer(PluginCall* call) {
  if (call->check_only) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<CudaBackend> backend, MakeCudaBackend(call->options));
  call->backend = backend.release();
  return absl::OkStatus();
}

}  // namespace
}  // namespace capstan::kernels::cuda

using capstan::kernels::cuda::kPluginMessageBytes;
using capstan::kernels::cuda::kPluginVersion;
using capstan::kernels::cuda::PluginCall;

extern "C" __attribute__((visibility("default"))) void CapstanCudaOpen(PluginCall* call) {
  call->plugin_version = kPluginVersion;
  if (call->caller_version != kPluginVersion) return;
  const absl::Status status = capstan::kernels::cuda::Answer(call);
  call->status_code = static_cast<int32_t>(status.code());
  const absl::string_view message = status.message();
  const size_t length = std::min<size_t>(message.size(), kPluginMessageBytes - 1);
  std::copy_n(message.data(), length, call->message);
  call->message[length] = 0;
}
