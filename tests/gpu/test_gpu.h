// TestGpu: the GPU of a test, opened once for each mode.
//
// Thread safety: used by one thread.
#ifndef CAPSTAN_TESTS_GPU_TEST_GPU_H_
#define CAPSTAN_TESTS_GPU_TEST_GPU_H_

#include "kernels/cuda/cuda_backend.h"

namespace capstan::gpu {

// Null where there is no GPU: says SKIPPED and why, once, or fails where one is required (gpu.h).
kernels::cuda::CudaBackend* TestGpu(kernels::cuda::Compute compute);

}  // namespace capstan::gpu

#endif  // CAPSTAN_TESTS_GPU_TEST_GPU_H_
