// libcapstan_cuda.so's only door; plugin_abi.h says what passes through it.
#include "kernels/cuda/backend_impl.h"
#include "kernels/cuda/plugin_door.h"

using capstan::kernels::cuda::PluginCall;

extern "C" __attribute__((visibility("default"))) void CapstanCudaOpen(PluginCall* call) {
  capstan::kernels::cuda::AnswerPluginCall(call, capstan::kernels::cuda::MakeCudaBackend);
}
