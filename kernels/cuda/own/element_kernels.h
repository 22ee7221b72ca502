// Kernels without a sum: activations, bias, dropout, casts, updates.
//
// Every launcher enqueues its kernel and returns the launch's error; n = 0 does nothing. Elements
// are independent, so the bits do not depend on the launch geometry; element_rules.h has the rules.
// All kernels are memory bound. "B" is the traffic of an fp32 element (bf16 tensors: half); the
// shortest possible time is B * n / bandwidth: for n = 25.6M at 3.35 TB/s (H100), 12 B take 92 us.
// tests/gpu:conformance_test compares them with kernels/reference.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_ELEMENT_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_OWN_ELEMENT_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/cuda/device_ops.h"
#include "kernels/cuda/own/kernel_types.h"

namespace capstan::kernels::cuda {

struct MapArgs {
  Element type = Element::kFloat;  // The type of all operands.
  int64_t n = 0;
  const void* a = nullptr;
  const void* b = nullptr;  // Only kernels with two inputs read it.
  void* y = nullptr;
};
cudaError_t LaunchRelu(const MapArgs& args, cudaStream_t stream);          // y = relu(a)       8 B
cudaError_t LaunchReluBackward(const MapArgs& args, cudaStream_t stream);  // y = a > 0 ? b : 0 12 B
cudaError_t LaunchAdd(const MapArgs& args, cudaStream_t stream);           // y = a + b        12 B

// y = activation(a), 8 B, and y = b * the activation's slope at a, 12 B (kernels/activation.h).
cudaError_t LaunchActivation(const MapArgs& args, Activation activation, cudaStream_t stream);
cudaError_t LaunchActivationBackward(const MapArgs& args, Activation activation,
                                     cudaStream_t stream);

// y = keep(i) ? a * factor : 0, where Philox word i of the key decides keep(i); b is ignored. 8 B.
//   key  [kKeyWords] in device memory, read when the kernel runs: a graph that is launched again
//        uses the key that is there then
cudaError_t LaunchDropout(const MapArgs& args, const DropoutRule& rule, const int32_t* key,
                          cudaStream_t stream);

// y[i] = act(y[i] + bias[i % c]), in place. 8 B.
struct BiasArgs {
  Element type = Element::kFloat;
  int64_t n = 0;  // Elements of y, < 2^31; a multiple of c.
  int c = 1;
  const float* bias = nullptr;  // [c]; null: no bias.
  bool relu = false;
  void* y = nullptr;
};
cudaError_t LaunchBias(const BiasArgs& args, cudaStream_t stream);

cudaError_t LaunchCast(const CastArgs& args, cudaStream_t stream);  // 6 B from fp32 to bf16.

// to[i] = table[i % channels, from[i]]. 3 B to bf16.
struct LookUpArgs {
  Element type = Element::kFloat;  // The type of `to`.
  int64_t n = 0;                   // < 2^31
  const uint8_t* from = nullptr;
  const float* table = nullptr;  // [channels, 256]
  int channels = 1;
  void* to = nullptr;
};
cudaError_t LaunchLookUp(const LookUpArgs& args, cudaStream_t stream);

// SGD 12 B, momentum 20 B, Adam 28 B; 2 B more with weights_bf16.
cudaError_t LaunchUpdate(const UpdateArgs& args, cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_ELEMENT_KERNELS_H_
