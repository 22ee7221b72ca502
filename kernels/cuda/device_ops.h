// Arguments of the device's own operations besides those of op.h: casts, updates, norms, codecs.
//
// All pointers are device memory, borrowed until the operation has run; counts may be 0. Plain
// C++: neither CUDA nor Abseil is seen here. Thread safety: values.
#ifndef CAPSTAN_KERNELS_CUDA_DEVICE_OPS_H_
#define CAPSTAN_KERNELS_CUDA_DEVICE_OPS_H_

#include <cstdint>

#include "kernels/cuda/element_rules.h"

namespace capstan::kernels::cuda {

enum class Number { kFp32, kBf16, kFp16 };
constexpr int64_t BytesOf(Number number) { return number == Number::kFp32 ? 4 : 2; }

// out[i] = round(in[i] * scale), rounded to nearest even. in == out where the sizes are the same.
struct CastArgs {
  int64_t n = 0;
  const void* in = nullptr;  // [n] from
  void* out = nullptr;       // [n] to
  Number from = Number::kFp32;
  Number to = Number::kFp32;
  float scale = 1.0f;
};

// weights = update(weights, gradient, s0, s1) of element_rules.h. Arrays do not overlap.
struct UpdateArgs {
  UpdateRule rule = UpdateRule::kSgd;  // One that is on_device.
  UpdateScalars scalars;
  int64_t n = 0;
  float* weights = nullptr;          // [n], in place.
  const float* gradient = nullptr;   // [n]
  float* s0 = nullptr;               // [n] if StateSlotsOf(rule) >= 1.
  float* s1 = nullptr;               // [n] if StateSlotsOf(rule) == 2.
  uint16_t* weights_bf16 = nullptr;  // [n] or null: the new weights as bf16.
};

// Sum of squares in double, and how many values are NaN or infinite (those are left out).
struct NormResult {
  double sum_of_squares = 0.0;
  int64_t not_finite = 0;
};
struct NormArgs {
  int64_t n = 0;
  const float* values = nullptr;  // [n]
  NormResult* result = nullptr;   // [1]
};

// int8 with error feedback, by blocks of kInt8Block (the last may be shorter):
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

// The k values of largest magnitude of v = gradient + residual, in the order of their indices; the
// others stay in the residual, the chosen ones leave 0 there.
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
