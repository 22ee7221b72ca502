// Conversions between fp32 and the types of two bytes (bf16, fp16), on the host.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_HALF_VALUES_H_
#define CAPSTAN_KERNELS_CUDA_HALF_VALUES_H_

#include <cstdint>

#include "kernels/cuda/element_rules.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {

// Converts fp32 to `dtype`: rounds to the nearest value, ties to even. REQUIRES: IsHalf(dtype).
inline uint16_t ToHalf(DataType dtype, float value) {
  return dtype == DataType::kBfloat16 ? cuda::ToBf16(value) : cuda::ToFp16(value);
}
// Converts `dtype` to fp32, exactly. REQUIRES: IsHalf(dtype).
inline float FromHalf(DataType dtype, uint16_t half) {
  return dtype == DataType::kBfloat16 ? cuda::FromBf16(half) : cuda::FromFp16(half);
}

// Reads element `i` of a view in host memory. REQUIRES: its type is fp32, bf16 or fp16.
inline float ValueAt(const TensorView& view, int64_t i) {
  if (!IsHalf(view.dtype)) return view.f32()[i];
  return FromHalf(view.dtype, static_cast<const uint16_t*>(view.data)[i]);
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CUDA_HALF_VALUES_H_
