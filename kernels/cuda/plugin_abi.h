// PluginCall: the argument of CapstanCudaOpen, the one C function that libcapstan_cuda.so exports.
//
// A backend is a C++ object, so the same compiler must build the plugin and the program that loads
// it from the same sources. Raise kPluginVersion whenever types of backend.h, device_backend.h,
// collective.h, op.h, tensor_view.h or cuda_backend.h change their layout in memory.
// Thread safety: values.
#ifndef CAPSTAN_KERNELS_CUDA_PLUGIN_ABI_H_
#define CAPSTAN_KERNELS_CUDA_PLUGIN_ABI_H_

#include <cstdint>

#include "kernels/cuda/cuda_backend.h"

namespace capstan::kernels::cuda {

inline constexpr uint32_t kPluginVersion = 12;
inline constexpr char kPluginFile[] = "libcapstan_cuda.so";
inline constexpr char kPluginSymbol[] = "CapstanCudaOpen";
inline constexpr int kPluginMessageBytes = 1024;

// The inputs and outputs of CapstanCudaOpen. Fields up to `backend` never move.
struct PluginCall {
  uint32_t caller_version = kPluginVersion;
  uint32_t plugin_version = 0;             // Out, always.
  int32_t status_code = 0;                 // Out: absl::StatusCode.
  char message[kPluginMessageBytes] = {};  // Out: the status's message, ends with 0.
  CudaBackend* backend = nullptr;  // Out: owned by the caller; null unless the status is OK.
  CudaOptions options;             // In; read only if the versions are the same.
  bool check_only = false;         // In: only compare the versions, and open nothing.
};

// Fills in the outputs. If its version differs, a plugin sets plugin_version and nothing else.
using PluginOpen = void (*)(PluginCall* call);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLUGIN_ABI_H_
