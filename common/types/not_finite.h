// IsNotFinite: finds infinities and NaN in loops that the compiler vectorises.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_TYPES_NOT_FINITE_H_
#define CAPSTAN_COMMON_TYPES_NOT_FINITE_H_

#include <bit>
#include <cstdint>

namespace capstan {

// 1 for infinities and NaN, else 0: a number, so that a loop collects it by |= without a branch.
inline uint32_t IsNotFinite(float value) {
  constexpr uint32_t kExponent = 0x7f800000;  // All of its bits are set only there.
  return (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_NOT_FINITE_H_
