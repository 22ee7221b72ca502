// The arithmetic of one element, which kernels and host share: rounding to bf16 and fp16, ReLU,
// dropout, update rules, int8 codes. Tests on the host compare each with its specification (named
// at its function). The kernels compile the same lines, without fused multiply-adds, so that they
// give the same bits.
//
// Plain C++ for g++ and nvcc. Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_ELEMENT_RULES_H_
#define CAPSTAN_KERNELS_CUDA_ELEMENT_RULES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "common/random/philox.h"
#include "kernels/host_device.h"
#include "kernels/with_constant.h"

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
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 or more.
  if (magnitude < 0x38800000u) {  // Denormal: steps of 2^-24, like fp32 numbers from 0.5 to 1.
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

// ---------------------------------------------------------------- ReLU and dropout
// Specification: kernels/reference/matrix_ops.cc. NaN passes through ReLU.

CAPSTAN_HOST_DEVICE float Relu(float x) { return x < 0.0f ? 0.0f : x; }
CAPSTAN_HOST_DEVICE float ReluGradient(float y, float dy) { return y > 0.0f ? dy : 0.0f; }

// Dropout's constants: threshold = ceil(rate * 2^32), factor = 1 / (1 - rate).
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
// Specification: server/optimizer/testing/reference.cc, with the same symbols and the same bits.
// The servers' loops (server/optimizer/update_rule.h) and the kernels compile these lines.

enum class UpdateRule {
  kSgd,
  kMomentum,
  kNesterov,
  kAdagrad,
  kRmsProp,
  kRmsPropMomentum,  // RMSProp with momentum > 0.
  kAdam,
  kAdamW,
  kFtrl,           // FTRL-proximal: has its own L1 and L2; REQUIRES weight_decay 0.
  kMovingAverage,  // Batch statistics: the "gradient" is the new value; no lr, decay or clipping.
  kLion,           // Steps of size lr in the direction of a sign; decoupled decay.
  kAmsGrad,        // Adam that divides by the largest mean square so far.
  kAdadelta,       // Scales gradients by the size of the steps so far.
  kLars,           // Momentum with a rate for each tensor.
  kLamb,           // Adam with a step length for each tensor; decay is part of the step.
  kPlugin,  // A rule of a server's plugin: its arithmetic and state are not here. The last one.
};

// The properties of a rule that do not depend on its scalars.
struct UpdateRuleTraits {
  UpdateRule rule;
  const char* name;        // Its field in Optimizer.kind of proto/job.proto; "" if it has none.
  int slots = 0;           // Floats of state that it keeps for an element: s0, s1, s2 below.
  bool on_device = false;  // True if the kernels have it; they keep two slots at most.
  bool counts_updates = false;  // Its scalars depend on how many updates an element has had.
  // Its rate is scaled for each tensor by norms over the whole of it: Direction() comes first.
  bool layer_wise = false;
};
// One entry for each rule, in the order of UpdateRule.
inline constexpr UpdateRuleTraits kUpdateRules[] = {
    {.rule = UpdateRule::kSgd, .name = "sgd", .on_device = true},
    {.rule = UpdateRule::kMomentum, .name = "momentum", .slots = 1, .on_device = true},
    {.rule = UpdateRule::kNesterov, .name = "nesterov", .slots = 1, .on_device = true},
    {.rule = UpdateRule::kAdagrad, .name = "adagrad", .slots = 1},
    {.rule = UpdateRule::kRmsProp, .name = "rmsprop", .slots = 1},
    {.rule = UpdateRule::kRmsPropMomentum, .name = "", .slots = 2},
    {.rule = UpdateRule::kAdam,
     .name = "adam",
     .slots = 2,
     .on_device = true,
     .counts_updates = true},
    {.rule = UpdateRule::kAdamW,
     .name = "adamw",
     .slots = 2,
     .on_device = true,
     .counts_updates = true},
    {.rule = UpdateRule::kFtrl, .name = "ftrl", .slots = 2},
    {.rule = UpdateRule::kMovingAverage, .name = ""},
    {.rule = UpdateRule::kLion, .name = "lion", .slots = 1, .on_device = true},
    {.rule = UpdateRule::kAmsGrad, .name = "amsgrad", .slots = 3, .counts_updates = true},
    {.rule = UpdateRule::kAdadelta, .name = "adadelta", .slots = 2, .on_device = true},
    {.rule = UpdateRule::kLars, .name = "lars", .slots = 1, .layer_wise = true},
    {.rule = UpdateRule::kLamb,
     .name = "lamb",
     .slots = 2,
     .counts_updates = true,
     .layer_wise = true},
    {.rule = UpdateRule::kPlugin, .name = "plugin"},
};

constexpr const UpdateRuleTraits& TraitsOf(UpdateRule rule) {
  return kUpdateRules[static_cast<size_t>(rule)];
}
constexpr int StateSlotsOf(UpdateRule rule) { return TraitsOf(rule).slots; }

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kUpdateRules); ++i) {
    if (kUpdateRules[i].rule != static_cast<UpdateRule>(i)) return false;
  }
  return true;
}
static_assert(InOrder());

// Calls call(std::integral_constant<UpdateRule, rule>()), which returns nothing. Does nothing for
// kPlugin.
template <typename Call>
void WithRule(UpdateRule rule, const Call& call) {
  WithConstant<static_cast<size_t>(UpdateRule::kPlugin)>(rule, call);
}

// The numbers that all elements of one update share. server/optimizer/README.md explains the names.
// Fields that a rule does not use hold harmless values.
struct UpdateScalars {
  float lr = 0.0f;    // The schedule's value; Adam, AdamW, AMSGrad: over 1 - beta1^(step+1).
  float clip = 0.0f;  // Infinity when clipping is off.
  float weight_decay = 0.0f;  // Factor of w that is added to g. 0 if decay is decoupled.
  float keep = 1.0f;          // Decoupled decay: 1 - lr * weight_decay, multiplied with w.
  float momentum = 0.0f;
  float beta1 = 0.0f, one_minus_beta1 = 0.0f;
  float beta2 = 0.0f, one_minus_beta2 = 0.0f;  // RMSProp: alpha, 1 - alpha; Adadelta: rho.
  float root_scale = 1.0f;    // Adam, AdamW, AMSGrad, LAMB: 1 / sqrt(1 - beta2^(step+1)).
  float moment_scale = 1.0f;  // LAMB: 1 / (1 - beta1^(step+1)).
  float step_decay = 0.0f;    // LAMB: the factor of w that is added to the step.
  float epsilon = 0.0f;
  float beta = 0.0f, l1 = 0.0f, l2 = 0.0f;  // FTRL.
  float inverse_lr = 0.0f;         // FTRL: 1 / max(lr, kFtrlRateMin), finite; 0 for others.
  float inverse_lr_before = 0.0f;  // FTRL: inverse_lr of the update before; at the first its own.
};

// Returns 0 for a denormal, else `state`, which has decayed. A processor takes up to 40 times as
// long for denormals, and a decay rounds the smallest ones to themselves: state would stay there
// for ever once its gradients are 0 (those of a dead ReLU, of a pixel that is always black).
CAPSTAN_HOST_DEVICE float Decayed(float state) {
  return std::fabs(state) < 0x1p-126f ? 0.0f : state;  // A NaN stays one.
}

// FTRL as in reference.cc. It computes both sides of each choice, so that loops are vectorised.
CAPSTAN_HOST_DEVICE float FtrlInverseRate(const UpdateScalars& c, float n, float inverse_lr) {
  const float strength = (c.beta + std::sqrt(n)) * inverse_lr;
  return n == 0.0f ? 0.0f : strength;
}
CAPSTAN_HOST_DEVICE float FtrlStep(const UpdateScalars& c, float w, float g, float* s0, float* s1) {
  constexpr float kLargest = 3.4028235e38f;
  const float before = FtrlInverseRate(c, *s1, c.inverse_lr_before);
  const float sum = *s1 + g * g;
  const float n = sum > kLargest ? kLargest : sum;
  const float strength = FtrlInverseRate(c, n, c.inverse_lr);
  const float z = (*s0 + g) - (strength - before) * w;
  *s0 = z;
  *s1 = n;
  float within = z < -c.l1 ? -c.l1 : z;  // l1 - z is -(z - l1), and z - z is 0.
  within = within > c.l1 ? c.l1 : within;
  const float updated = (within - z) / (strength + c.l2);
  return n == 0.0f ? w : updated;
}

CAPSTAN_HOST_DEVICE float LambStep(const UpdateScalars& c, float w, float m, float v) {
  return (c.moment_scale * m) / (std::sqrt(v) * c.root_scale + c.epsilon) + c.step_decay * w;
}

// For a layer-wise rule: returns the element of the vector whose norm is compared with that of the
// weights, from g, which is clipped and has no decay. It updates the moments, which Stepped then
// reads.
template <UpdateRule kRule>
CAPSTAN_HOST_DEVICE float Direction(const UpdateScalars& c, float w, float g, float* s0,
                                    float* s1) {
  if constexpr (kRule == UpdateRule::kLars) {
    return g;
  } else {
    static_assert(kRule == UpdateRule::kLamb);
    *s0 = Decayed(c.beta1 * *s0 + c.one_minus_beta1 * g);
    *s1 = Decayed(c.beta2 * *s1 + (c.one_minus_beta2 * g) * g);
    return LambStep(c, w, *s0, *s1);
  }
}

// Returns the weight after a step by g, which is already clipped and has its decay. Updates the
// slots that the rule has, and reads no others.
template <UpdateRule kRule>
CAPSTAN_HOST_DEVICE float Stepped(const UpdateScalars& c, float w, float g, float* s0, float* s1,
                                  [[maybe_unused]] float* s2) {
  if constexpr (kRule == UpdateRule::kSgd) {
    return w - c.lr * g;
  } else if constexpr (kRule == UpdateRule::kMomentum) {
    const float v = Decayed(c.momentum * *s0 + g);
    *s0 = v;
    return w - c.lr * v;
  } else if constexpr (kRule == UpdateRule::kNesterov) {
    const float v = Decayed(c.momentum * *s0 + g);
    *s0 = v;
    return w - c.lr * (g + c.momentum * v);
  } else if constexpr (kRule == UpdateRule::kAdagrad) {
    const float s = *s0 + g * g;
    *s0 = s;
    return w - (c.lr * g) / (std::sqrt(s) + c.epsilon);
  } else if constexpr (kRule == UpdateRule::kRmsProp || kRule == UpdateRule::kRmsPropMomentum) {
    const float s = Decayed(c.beta2 * *s0 + (c.one_minus_beta2 * g) * g);
    *s0 = s;
    const float root = std::sqrt(s) + c.epsilon;
    if constexpr (kRule == UpdateRule::kRmsProp) return w - (c.lr * g) / root;
    const float buffer = Decayed(c.momentum * *s1 + g / root);
    *s1 = buffer;
    return w - c.lr * buffer;
  } else if constexpr (kRule == UpdateRule::kAdadelta) {
    const float s = Decayed(c.beta2 * *s0 + (c.one_minus_beta2 * g) * g);
    const float step = (std::sqrt(*s1 + c.epsilon) / std::sqrt(s + c.epsilon)) * g;
    *s0 = s;
    *s1 = Decayed(c.beta2 * *s1 + (c.one_minus_beta2 * step) * step);
    return w - c.lr * step;
  } else if constexpr (kRule == UpdateRule::kFtrl) {
    return FtrlStep(c, w, g, s0, s1);
  } else if constexpr (kRule == UpdateRule::kMovingAverage) {
    return w + c.momentum * (g - w);
  } else if constexpr (kRule == UpdateRule::kLion) {
    const float mixed = c.beta1 * *s0 + c.one_minus_beta1 * g;
    const float below = mixed < 0.0f ? -1.0f : mixed;  // 0 and NaN do not change.
    *s0 = Decayed(c.beta2 * *s0 + c.one_minus_beta2 * g);
    return w * c.keep - c.lr * (mixed > 0.0f ? 1.0f : below);
  } else if constexpr (kRule == UpdateRule::kLars) {
    const float v = Decayed(c.momentum * *s0 + c.lr * g);
    *s0 = v;
    return w - v;
  } else if constexpr (kRule == UpdateRule::kLamb) {
    return w - c.lr * LambStep(c, w, *s0, *s1);
  } else {
    static_assert(kRule == UpdateRule::kAdam || kRule == UpdateRule::kAdamW ||
                  kRule == UpdateRule::kAmsGrad);
    const float m = Decayed(c.beta1 * *s0 + c.one_minus_beta1 * g);
    const float v = Decayed(c.beta2 * *s1 + (c.one_minus_beta2 * g) * g);
    *s0 = m;
    *s1 = v;
    float mean_square = v;
    if constexpr (kRule == UpdateRule::kAmsGrad) {
      mean_square = *s2 >= v ? *s2 : v;
      *s2 = mean_square;
    }
    return w * c.keep - (c.lr * m) / (std::sqrt(mean_square) * c.root_scale + c.epsilon);
  }
}

// g after clipping.
CAPSTAN_HOST_DEVICE float Clipped(const UpdateScalars& c, float g) {
  g = g < -c.clip ? -c.clip : g;
  return g > c.clip ? c.clip : g;
}

// Returns the weight after the update of a parameter, and updates the slots that the rule has. It
// is for every rule except the moving average.
template <UpdateRule kRule>
CAPSTAN_HOST_DEVICE float Updated(const UpdateScalars& c, float w, float g, float* s0, float* s1,
                                  float* s2 = nullptr) {
  g = Clipped(c, g);
  if (c.weight_decay != 0.0f) g = g + c.weight_decay * w;
  return Stepped<kRule>(c, w, g, s0, s1, s2);
}

// ---------------------------------------------------------------- gradient codecs

// int8 codes of a block of values that share a scale: scale = largest magnitude / 127,
// code = round(value / scale) to even, value' = code * scale. The residual, value - value', is
// added to the next gradient (error feedback). A block of zeros has scale 0 and codes 0. A block
// with a value that is not finite has scale NaN, so that the receiver notices.
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

// Top-k prefers values with a larger key: larger magnitudes, and NaN before all others, so that NaN
// is noticed. Among equal keys it prefers the first in the array.
CAPSTAN_HOST_DEVICE uint32_t MagnitudeKey(float value) { return BitsOf(value) & 0x7fffffffu; }

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_ELEMENT_RULES_H_
