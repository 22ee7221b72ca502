// A plugin of a version that never was.
#include "kernels/cuda/plugin_abi.h"

extern "C" void CapstanCudaOpen(capstan::kernels::cuda::PluginCall* call) {
  call->plugin_version = ~uint32_t{0};
}
