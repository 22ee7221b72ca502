// HostProduct: one product of cuBLASLt, computed on the host.
//
//   D = alpha op(A) op(B) + beta C + bias      op(A): m x k, op(B): k x n; C, D: m x n
//
// Sums are in double, over k in ascending order; the rest is fp32, as in cuBLASLt, and rounded to
// D's type once, to the nearest. Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_HOST_PRODUCT_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_HOST_PRODUCT_H_

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>

namespace capstan::kernels::cuda::emulation {

// As it lies in memory: columns first, `ld` elements from one column to the next.
struct Matrix {
  void* data = nullptr;
  cudaDataType type = CUDA_R_32F;  // Or CUDA_R_16BF, CUDA_R_16F.
  int64_t rows = 0, columns = 0, ld = 0;
};

enum class ProductEpilogue {
  kNone,
  kBias,           // bias[i] (of m) is added to row i of D.
  kBiasGradientB,  // bias[j] (of n) becomes the sum of op(B) over k, in column j.
};

struct HostProduct {
  // Factors are rounded to TF32 first: 10 bits of mantissa, ties to even.
  bool tf32 = false;
  bool a_transposed = false, b_transposed = false;
  Matrix a, b, c, d;  // c is only read where beta is not 0; it may be d.
  float alpha = 1.0f, beta = 0.0f;
  ProductEpilogue epilogue = ProductEpilogue::kNone;
  float* bias = nullptr;
  // Scratch: full of NaN before anything is read and after all is written.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  int device = 0;  // Whose memory all of it is in.
};

// Computes it.
// Errors: cudaErrorIllegalAddress  an operand or the workspace is not in the device's memory.
//         cudaErrorLaunchFailure   what is written overlaps another operand (but C, which is D).
cudaError_t Run(const HostProduct& product);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_HOST_PRODUCT_H_
