// Conversions with which the emulated libraries round numbers. They are the CUDA toolkit's own, not
// the backend's, which are under test.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_HOST_NUMBERS_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_HOST_NUMBERS_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace capstan::kernels::cuda::emulation {

inline float ToFloat(float value) { return value; }
inline float ToFloat(__half value) { return __half2float(value); }
inline float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }

// Rounds to the nearest value, ties to even.
template <typename T>
T FromFloat(float value);
template <>
inline float FromFloat<float>(float value) {
  return value;
}
template <>
inline __half FromFloat<__half>(float value) {
  return __float2half_rn(value);
}
template <>
inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Rounds to 10 bits of mantissa, to the nearest value, ties to even.
inline float RoundToTf32(float value) {
  if (!std::isfinite(value)) return value;
  constexpr uint32_t kDropped = 23 - 10;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t odd = bits >> kDropped & 1;
  const uint32_t rounded = bits + (uint32_t{1} << (kDropped - 1)) - 1 + odd;
  return std::bit_cast<float>(rounded >> kDropped << kDropped);
}

// Fills memory with bytes that are NaN in every type. `memory` may be null if `bytes` is 0.
inline void FillWithNan(void* memory, size_t bytes) {
  if (bytes > 0) std::memset(memory, 0xff, bytes);
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_HOST_NUMBERS_H_
