// Kernels over a gradient as a whole: norm with a check for NaN, int8 codes, top-k.
//
// Every launcher enqueues and returns the launch's error. The same bits on every run: sums have an
// order that n alone decides, atomics add only integers. Arguments: device_ops.h. All are memory
// bound; "B" is the traffic of an element. Specification: element_rules.h; compared with the same
// on the host by tests/gpu:conformance_test.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_CODEC_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_CODEC_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/device_ops.h"

namespace capstan::kernels::cuda {

// Sums in double. 4 B.
int64_t NormScratchBytes();
cudaError_t LaunchNorm(const NormArgs& args, void* scratch, cudaStream_t stream);

cudaError_t LaunchQuantize(const QuantizeArgs& args, cudaStream_t stream);      // 13 B
cudaError_t LaunchDequantize(const DequantizeArgs& args, cudaStream_t stream);  // 5 B

// Radix select: four passes find the k-th magnitude, two write what is larger. 12 + 7 * 4 B.
int64_t TopKScratchBytes(int64_t n);
cudaError_t LaunchTopK(const TopKArgs& args, void* scratch, cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_CODEC_KERNELS_H_
