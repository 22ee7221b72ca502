// Kernels of images [n, h, w, c]: pools, normalisations, and sums over positions (bias gradients).
//
// Every launcher enqueues its kernels and returns the launch's error. Shapes and alignment alone
// decide the order of sums, so every run gives the same bits. kernels/reference/image_ops.cc is the
// specification, with which tests/gpu:conformance_test compares them. All kernels are memory bound.
// "B" is the traffic of an fp32 element (bf16 tensors: half); the shortest possible time is
// B * elements / bandwidth.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_IMAGE_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_OWN_IMAGE_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/own/kernel_types.h"

namespace capstan::kernels::cuda {

// x [n,h,w,c], y [n,out_h,out_w,c], index as y: the winner's offset in its window. One thread
// writes one element, or 16 bytes of neighbouring channels. Backward gathers, so no sum uses
// atomics. About 4 B per element of x and 8 B per element of y.
struct PoolArgs {
  Element type = Element::kFloat;  // The type of x, y, dx and dy.
  WindowShape shape;
  const void* from = nullptr;  // Forward: x; backward: dy.
  void* to = nullptr;          // Forward: y; backward: dx.
  int32_t* index = nullptr;    // Max pools: forward writes it, backward reads it.
};
cudaError_t LaunchMaxPoolForward(const PoolArgs& args, cudaStream_t stream);
cudaError_t LaunchMaxPoolBackward(const PoolArgs& args, cudaStream_t stream);
cudaError_t LaunchAveragePoolForward(const PoolArgs& args, cudaStream_t stream);
cudaError_t LaunchAveragePoolBackward(const PoolArgs& args, cudaStream_t stream);

// The scratch that the sums below need for a matrix [rows, c].
int64_t ColumnSumsScratchBytes(int64_t rows, int c);

// sums[j] = sum over i of dy[i, j].   4 B.
struct ColumnSumsArgs {
  Element type = Element::kFloat;  // The type of dy.
  int64_t rows = 0;                // >= 1.
  int c = 1;
  const void* dy = nullptr;         // [rows, c]
  float* sums = nullptr;            // [c]
  void* scratch = nullptr;          // ColumnSumsScratchBytes(rows, c)
  unsigned* strips_done = nullptr;  // [kStripsMax], all 0 before and after.
};
cudaError_t LaunchColumnSums(const ColumnSumsArgs& args, cudaStream_t stream);

// The operations that batch norm includes: kRelu is y = relu(..), kAddendRelu y = relu(.. +
// addend).
enum class Fused { kNothing, kRelu, kAddendRelu };

// Per channel over `rows` positions, with inv = 1 / sqrt(variance + epsilon):
//   forward   mean = E[x], variance = E[(x - mean)^2];  y = (x - mean) * inv * scale + shift
//   backward  dshift = sum g, dscale = sum g * normal, normal = (x - mean) * inv;
//             dx = scale * inv * (g - dshift / rows - normal * dscale / rows)
//             g = dy where ReLU's argument is positive, else 0. kRelu computes that argument again
//             from x; kAddendRelu tests y instead, and stores g as dsum. If there is dy2, g uses
//             dy + dy2 in place of dy.
// Sums of x are sums of x - x[0], in fp32 within a thread and in double across threads.
// Forward 12 B (x twice, y), inference 8 B, backward 20 B (x and dy twice, dx). An addend costs
// 4 B more forward and 8 B more backward (y, dsum), dy2 costs 4 B; ReLU costs nothing.
struct BatchNormArgs {
  Element type = Element::kFloat;  // The type of x, y, addend, and their gradients.
  Fused fused = Fused::kNothing;
  int64_t rows = 0;  // n * h * w, >= 1.
  int c = 1;
  float epsilon = 0.0f;
  const void* x = nullptr;
  const void* addend = nullptr;  // kAddendRelu's forward and inference read it.
  const void* dy = nullptr;      // Backward reads it.
  const void* dy2 = nullptr;     // kAddendRelu's backward reads it; may be null.
  const void* y = nullptr;       // kAddendRelu's backward reads it.
  const float* scale = nullptr;  // [c]; also shift, mean, variance, dscale and dshift.
  const float* shift = nullptr;  // Backward reads it only with kRelu.
  float* mean = nullptr;         // Forward writes it, the others read it.
  float* variance = nullptr;     // Forward writes it, the others read it.
  float* dscale = nullptr;
  float* dshift = nullptr;
  void* out = nullptr;              // y, which may be addend; or dx.
  void* dsum = nullptr;             // kAddendRelu's backward writes it; may be dy or dy2.
  void* scratch = nullptr;          // ColumnSumsScratchBytes(rows, c); not for inference.
  unsigned* strips_done = nullptr;  // See ColumnSumsArgs; not for inference.
};
cudaError_t LaunchBatchNormForward(const BatchNormArgs& args, cudaStream_t stream);
cudaError_t LaunchBatchNormInference(const BatchNormArgs& args, cudaStream_t stream);
cudaError_t LaunchBatchNormBackward(const BatchNormArgs& args, cudaStream_t stream);

// Per row of c channels, with inv = 1 / sqrt(variance + epsilon); one warp handles one row:
//   forward   mean = E[x], variance = E[(x - mean)^2];  y = (x - mean) * inv * scale + shift
//   backward  g = dy * scale, normal = (x - mean) * inv;
//             dx = inv * (g - E[g] - normal * E[g * normal])
//             dscale = sum over rows of dy * normal, dshift = sum over rows of dy
// Forward 8 B (it reads x three times, from the cache except the first time), backward 20 B (x and
// dy twice, dx). kernels/reference/matrix_ops.cc is the specification.
struct LayerNormArgs {
  Element type = Element::kFloat;  // The type of x, y and their gradients.
  int64_t rows = 0;                // n * h * w, >= 1.
  int c = 1;
  float epsilon = 0.0f;
  const void* x = nullptr;
  const void* dy = nullptr;      // Backward reads it.
  const float* scale = nullptr;  // [c]; also shift, dscale and dshift.
  const float* shift = nullptr;  // Forward reads it.
  float* mean = nullptr;         // [rows], also variance; forward writes them, backward reads them.
  float* variance = nullptr;
  float* dscale = nullptr;
  float* dshift = nullptr;
  void* out = nullptr;              // y; or dx.
  void* scratch = nullptr;          // ColumnSumsScratchBytes(rows, c); for backward.
  unsigned* strips_done = nullptr;  // See ColumnSumsArgs; for backward.
};
cudaError_t LaunchLayerNormForward(const LayerNormArgs& args, cudaStream_t stream);
cudaError_t LaunchLayerNormBackward(const LayerNormArgs& args, cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_IMAGE_KERNELS_H_
