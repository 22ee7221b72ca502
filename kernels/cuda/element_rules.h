// The arithmetic of one element, shared by kernels and host: rounding to bf16 and fp16, ReLU,
// dropout, update rules, int8 codes. Tested on the host against the specification of each (named
// at its function); the kernels compile the same lines, without fused multiply-adds, so that they
// give the same bits.
//
// Plain C++ for g++ and nvcc. Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_ELEMENT_RULES_H_
#define CAPSTAN_KERNELS_CUDA_ELEMENT_RULES_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/random/philox.h"

#if defined(__CUDACC__)
#define CAPSTAN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CAPSTAN_HOST_DEVICE inline
#endif

namespace capstan::kernels::cuda {

CAPSTAN_HOST_DEVICE uint32_t BitsOf(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, 4);
  return bits;
}
CAPSTAN_HOST_DEVICE float FloatOf(uint32_t bits) {
  float value = 0.0f;
  memcpy(&value, &bits, 4);
  return value;
}

// ---------------------------------------------------------------- numbers of 16 bits
// Specification: common/wire/number_format.h; to the nearest, ties to even, NaN stays NaN.

CAPSTAN_HOST_DEVICE uint16_t ToBf16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
#if defined(__CUDA_ARCH__)
  uint16_t rounded = 0;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));  // The same in one instruction.
  return rounded;
#endif
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
CAPSTAN_HOST_DEVICE float FromBf16(uint16_t half) {
  return FloatOf(static_cast<uint32_t>(half) << 16);
}

CAPSTAN_HOST_DEVICE uint16_t ToFp16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // From 65520 on.
  if (magnitude < 0x38800000u) {  // Denormal, steps of 2^-24: those of numbers from 0.5 to 1.
    return static_cast<uint16_t>(sign | (BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
CAPSTAN_HOST_DEVICE float FromFp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude > 0x7c00u) return FloatOf(sign | 0x7fc00000u | (magnitude << 13));
  if (magnitude == 0x7c00u) return FloatOf(sign | 0x7f800000u);
  if (magnitude < 0x400u) {
    return FloatOf(sign | BitsOf(static_cast<float>(magnitude) * 0x1p-24f));
  }
  return FloatOf(sign | ((magnitude << 13) + 0x38000000u));
}

// ---------------------------------------------------------------- activations
// Specification: kernels/reference/matrix_ops.h. NaN passes through ReLU.

CAPSTAN_HOST_DEVICE float Relu(float x) { return x < 0.0f ? 0.0f : x; }
CAPSTAN_HOST_DEVICE float ReluGradient(float y, float dy) { return y > 0.0f ? dy : 0.0f; }

// What dropout needs besides its key. threshold = ceil(rate * 2^32), factor = 1 / (1 - rate).
struct DropoutRule {
  uint64_t threshold = 0;
  float factor = 1.0f;
};
CAPSTAN_HOST_DEVICE float Dropout(const DropoutRule& rule, uint32_t word, float x) {
  return word >= rule.threshold ? x * rule.factor : 0.0f;
}
inline DropoutRule DropoutRuleOf(float rate) {
  return {.threshold = static_cast<uint64_t>(std::ceil(static_cast<double>(rate) * 0x1p32)),
          .factor = static_cast<float>(1.0 / (1.0 - static_cast<double>(rate)))};
}

// ---------------------------------------------------------------- update rules
// Specification: server/optimizer/reference.cc, whose bits these give; symbols as there.

enum class UpdateRule { kSgd, kMomentum, kNesterov, kAdam };  // AdamW is kAdam with keep < 1.

// The same fields, with the same meaning, as server/optimizer/step_scalars.h.
struct UpdateScalars {
  float lr = 0.0f;
  float clip = 0.0f;  // Infinity: off.
  float weight_decay = 0.0f;
  float keep = 1.0f;
  float momentum = 0.0f;
  float beta1 = 0.0f, one_minus_beta1 = 0.0f;
  float beta2 = 0.0f, one_minus_beta2 = 0.0f;
  float root_scale = 1.0f;
  float epsilon = 0.0f;
};

// Floats of state that a rule keeps for an element: s0 and s1 below.
constexpr int StateSlotsOf(UpdateRule rule) {
  return rule == UpdateRule::kSgd ? 0 : rule == UpdateRule::kAdam ? 2 : 1;
}

// The weight after the update; updates *s0 and *s1, which a rule without such a slot leaves alone.
template <UpdateRule kRule>
CAPSTAN_HOST_DEVICE float Updated(const UpdateScalars& c, float w, float g, float* s0, float* s1) {
  if (g < -c.clip) g = -c.clip;
  if (g > c.clip) g = c.clip;
  if (c.weight_decay != 0.0f) g = g + c.weight_decay * w;
  if constexpr (kRule == UpdateRule::kSgd) {
    return w - c.lr * g;
  } else if constexpr (kRule == UpdateRule::kMomentum) {
    *s0 = c.momentum * *s0 + g;
    return w - c.lr * *s0;
  } else if constexpr (kRule == UpdateRule::kNesterov) {
    *s0 = c.momentum * *s0 + g;
    return w - c.lr * (g + c.momentum * *s0);
  } else {
    *s0 = c.beta1 * *s0 + c.one_minus_beta1 * g;
    *s1 = c.beta2 * *s1 + (c.one_minus_beta2 * g) * g;
    return w * c.keep - (c.lr * *s0) / (std::sqrt(*s1) * c.root_scale + c.epsilon);
  }
}

// ---------------------------------------------------------------- gradient codecs

// int8 codes of a block of values that share a scale: scale = largest magnitude / 127,
// code = round(value / scale) to even, value' = code * scale. The residual, value - value', is
// added to the next gradient (error feedback). A block that is all 0 has scale 0 and codes 0; one
// with a value that is not finite has scale NaN, so that its receiver sees it.
inline constexpr int kInt8Block = 256;

CAPSTAN_HOST_DEVICE float Int8Scale(float largest) { return largest / 127.0f; }
CAPSTAN_HOST_DEVICE int8_t Int8Code(float value, float scale) {
  if (!(scale > 0.0f) || !(scale <= 3.4028235e38f)) return 0;
  // A denormal scale rounds so coarsely that the quotient may pass 127.
  const float code = std::nearbyint(value / scale);
  return static_cast<int8_t>(code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code);
}
CAPSTAN_HOST_DEVICE float FromInt8(int8_t code, float scale) {
  return static_cast<float>(code) * scale;
}

// The order in which top-k prefers values: larger magnitude first; NaN before all, so that it is
// seen. Of equal ones the first in the array is taken.
CAPSTAN_HOST_DEVICE uint32_t MagnitudeKey(float value) { return BitsOf(value) & 0x7fffffffu; }

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_ELEMENT_RULES_H_
