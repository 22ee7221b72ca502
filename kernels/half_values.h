// Numbers of two bytes, as the host reads and writes them.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_HALF_VALUES_H_
#define CAPSTAN_KERNELS_HALF_VALUES_H_

#include <cstdint>

#include "kernels/cuda/element_rules.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {

// Rounded to the nearest, ties to even. REQUIRES: IsHalf(dtype), here and below.
inline uint16_t ToHalf(DataType dtype, float value) {
  return dtype == DataType::kBfloat16 ? cuda::ToBf16(value) : cuda::ToFp16(value);
}
inline float FromHalf(DataType dtype, uint16_t half) {
  return dtype == DataType::kBfloat16 ? cuda::FromBf16(half) : cuda::FromFp16(half);
}

// Element `i` of a view in the host's memory, of fp32 or a type of two bytes.
inline float ValueAt(const TensorView& view, int64_t i) {
  if (!IsHalf(view.dtype)) return view.f32()[i];
  return FromHalf(view.dtype, static_cast<const uint16_t*>(view.data)[i]);
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_HALF_VALUES_H_
