#include "common/types/finite_values.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace capstan {
namespace {

// 1 for infinities and NaN, else 0: a number, so that a loop collects it by |= without a branch.
uint32_t IsNotFinite(float value) {
  constexpr uint32_t kExponent = 0x7f800000;  // All of its bits are set only there.
  return (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
}

}  // namespace

bool AllFinite(absl::Span<const float> values) {
  uint32_t wrong = 0;
  for (const float value : values) wrong |= IsNotFinite(value);
  return wrong == 0;
}

bool CopyScaled(absl::Span<const float> values, float scale, float* to) {
  uint32_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = values[i] * scale;
    wrong |= IsNotFinite(value);
    to[i] = value;
  }
  return wrong == 0;
}

}  // namespace capstan
