// The only function that libcapstan_cuda.so exports; see plugin_abi.h.
#include "kernels/cuda/plugin/backend_impl.h"
#include "kernels/cuda/plugin_entry.h"

using capstan::kernels::cuda::PluginCall;

extern "C" __attribute__((visibility("default"))) void CapstanCudaOpen(PluginCall* call) {
  capstan::kernels::cuda::AnswerPluginCall(call, capstan::kernels::cuda::MakeCudaBackend);
}
