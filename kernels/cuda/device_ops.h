// Arguments of CudaBackend's own operations, which op.h lacks: casts, updates, norms, codecs.
//
// All pointers are device memory, borrowed until the operation has run; counts may be 0. This is
// plain C++ without CUDA or Abseil. Thread safety: values.
#ifndef CAPSTAN_KERNELS_CUDA_DEVICE_OPS_H_
#define CAPSTAN_KERNELS_CUDA_DEVICE_OPS_H_

#include <cstdint>

#include "kernels/cuda/element_rules.h"

namespace capstan::kernels::cuda {

enum class Number { kFp32, kBf16, kFp16 };
constexpr int64_t BytesOf(Number number) { return number == Number::kFp32 ? 4 : 2; }

// out[i] = round(in[i] * scale), rounded to nearest even. `in` may be `out` if both types have the
// same size.
struct CastArgs {
  int64_t n = 0;
  const void* in = nullptr;  // [n] of type `from`.
  void* out = nullptr;       // [n] of type `to`.
  Number from = Number::kFp32;
  Number to = Number::kFp32;
  float scale = 1.0f;
};

// weights = update(weights, gradient, s0, s1) of element_rules.h. Arrays do not overlap.
struct UpdateArgs {
  UpdateRule rule = UpdateRule::kSgd;  // REQUIRES: its traits have on_device.
  UpdateScalars scalars;
  int64_t n = 0;
  float* weights = nullptr;          // [n], in place.
  const float* gradient = nullptr;   // [n]
  float* s0 = nullptr;               // [n] if StateSlotsOf(rule) >= 1.
  float* s1 = nullptr;               // [n] if StateSlotsOf(rule) == 2.
  uint16_t* weights_bf16 = nullptr;  // [n] or null: the new weights as bf16.
};

// The sum of squares in double, and the number of values that are NaN or infinite. The sum leaves
// these out.
struct NormResult {
  double sum_of_squares = 0.0;
  int64_t not_finite = 0;
};
struct NormArgs {
  int64_t n = 0;
  const float* values = nullptr;  // [n]
  NormResult* result = nullptr;   // [1]
};

// int8 codes with error feedback, in blocks of kInt8Block values (the last may be shorter):
//   v = gradient + residual;  codes, scale = int8 of v;  residual = v - codes * scale
struct QuantizeArgs {
  int64_t n = 0;
  const float* gradient = nullptr;  // [n]
  float* residual = nullptr;        // [n], in place.
  int8_t* codes = nullptr;          // [n]
  float* scales = nullptr;          // [ceil(n / kInt8Block)]
};
struct DequantizeArgs {
  int64_t n = 0;
  const int8_t* codes = nullptr;  // [n]
  const float* scales = nullptr;  // [ceil(n / kInt8Block)]
  float* values = nullptr;        // [n]
};

// Chooses the k values of largest magnitude of v = gradient + residual, and writes them in the
// order of their indices. The residual becomes 0 for the chosen values, and v for the others.
struct TopKArgs {
  int64_t n = 0;                    // < 2^31.
  int64_t k = 0;                    // 0 <= k <= n.
  const float* gradient = nullptr;  // [n]
  float* residual = nullptr;        // [n], in place.
  int32_t* indices = nullptr;       // [k]
  float* values = nullptr;          // [k]
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_DEVICE_OPS_H_
