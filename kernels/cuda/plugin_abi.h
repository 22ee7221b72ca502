// What libcapstan_cuda.so exports: one C function, CapstanCudaOpen, with a version in front.
//
// A backend is a C++ object, so the plugin and who loads it must be built from the same sources by
// the same compiler. kPluginVersion is raised whenever backend.h, device_backend.h, collective.h,
// op.h, tensor_view.h or cuda_backend.h change what they look like in memory.
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

// In and out of CapstanCudaOpen. Fields up to `backend` never move.
struct PluginCall {
  uint32_t caller_version = kPluginVersion;
  uint32_t plugin_version = 0;             // Out, always.
  int32_t status_code = 0;                 // Out: absl::StatusCode.
  char message[kPluginMessageBytes] = {};  // Out: of the status, ends with 0.
  CudaBackend* backend = nullptr;  // Out: owned by the caller; null unless the status is OK.
  CudaOptions options;             // In; read only where the versions are the same.
  bool check_only = false;         // In: compares the versions, and opens nothing.
};

// Fills in the outputs. A plugin of another version sets plugin_version and nothing else.
using PluginOpen = void (*)(PluginCall* call);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLUGIN_ABI_H_
