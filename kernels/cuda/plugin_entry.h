// AnswerPluginCall: implements CapstanCudaOpen (plugin_abi.h) for a plugin.
//
// Thread safety: as `make`.
#ifndef CAPSTAN_KERNELS_CUDA_PLUGIN_ENTRY_H_
#define CAPSTAN_KERNELS_CUDA_PLUGIN_ENTRY_H_

#include <algorithm>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/plugin_abi.h"

namespace capstan::kernels::cuda {

// `make` opens a device: CudaOptions -> StatusOr<unique_ptr<CudaBackend>>.
template <typename Make>
void AnswerPluginCall(PluginCall* call, const Make& make) {
  call->plugin_version = kPluginVersion;
  if (call->caller_version != kPluginVersion) return;
  absl::Status status;
  if (!call->check_only) {
    absl::StatusOr<std::unique_ptr<CudaBackend>> backend = make(call->options);
    status = backend.status();
    if (backend.ok()) call->backend = backend->release();
  }
  call->status_code = static_cast<int32_t>(status.code());
  const absl::string_view message = status.message();
  const size_t length = std::min<size_t>(message.size(), kPluginMessageBytes - 1);
  std::copy_n(message.data(), length, call->message);
  call->message[length] = 0;
}

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLUGIN_ENTRY_H_
