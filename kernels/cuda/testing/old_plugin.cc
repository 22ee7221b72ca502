// A plugin with a version that does not exist, for loader_test.
#include "kernels/cuda/plugin_abi.h"

extern "C" void CapstanCudaOpen(capstan::kernels::cuda::PluginCall* call) {
  call->plugin_version = ~uint32_t{0};
}
