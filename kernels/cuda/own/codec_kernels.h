// Kernels over a whole gradient: norm with a check for NaN, int8 codes, top-k.
//
// Every launcher enqueues its kernels and returns the launch's error. Every run gives the same
// bits: n alone decides the order of sums, and atomics add only integers. device_ops.h explains the
// arguments. All kernels are memory bound; "B" is the traffic of an element. element_rules.h is the
// specification; tests/gpu:conformance_test compares them with the same rules on the host.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_CODEC_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_OWN_CODEC_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/device_ops.h"

namespace capstan::kernels::cuda {

// It sums in double. 4 B.
int64_t NormScratchBytes();
cudaError_t LaunchNorm(const NormArgs& args, void* scratch, cudaStream_t stream);

cudaError_t LaunchQuantize(const QuantizeArgs& args, cudaStream_t stream);      // 13 B
cudaError_t LaunchDequantize(const DequantizeArgs& args, cudaStream_t stream);  // 5 B

// A radix select: four passes find the k-th magnitude, two write the chosen values. 12 + 7 * 4 B.
int64_t TopKScratchBytes(int64_t n);
cudaError_t LaunchTopK(const TopKArgs& args, void* scratch, cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_CODEC_KERNELS_H_
