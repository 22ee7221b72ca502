// The arithmetic of one element under each rule, and the loop over elements that lie side by side:
// for the two forms of an update, of a dense range (update_loops.cc) and of rows (row_loops.cc).
// What is inlined is compiled for the instruction set of the function that it is inlined into.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_OPTIMIZER_UPDATE_RULE_H_
#define CAPSTAN_SERVER_OPTIMIZER_UPDATE_RULE_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "common/types/unaligned_float.h"
#include "server/optimizer/step_scalars.h"

// No iteration reads what another one writes (in == out is the same element), which the compiler
// cannot see from the pointers.
#if defined(__clang__)
#define CAPSTAN_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define CAPSTAN_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

#define CAPSTAN_INLINE __attribute__((always_inline)) inline

namespace capstan::server::update_rule {

// OptimizerKind with RMSProp's two forms told apart, and AdamW folded into Adam
// (StepScalars::keep).
enum class Rule {
  kSgd,
  kMomentum,
  kNesterov,
  kAdagrad,
  kRmsProp,
  kRmsPropMomentum,
  kAdam,
  kFtrl,
  kMovingAverage,
};

struct Arrays {
  int64_t n;
  const float* in;
  const UnalignedFloat* gradient;
  float* s0;  // A slot that the rule does not have points to out, and is never read.
  float* s1;
  float* out;
};

// As in reference.cc, with both ways of each choice computed, so that the loop is vectorised.
CAPSTAN_INLINE float FtrlStrength(const StepScalars& c, float n, float inverse_lr) {
  const float strength = (c.beta + std::sqrt(n)) * inverse_lr;
  return n == 0.0f ? 0.0f : strength;
}

CAPSTAN_INLINE float UpdateFtrl(const StepScalars& c, float w, float g, float* s0, float* s1) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float before = FtrlStrength(c, *s1, c.inverse_lr_before);
  const float sum = *s1 + g * g;
  const float n = sum > kLargest ? kLargest : sum;
  const float strength = FtrlStrength(c, n, c.inverse_lr);
  const float z = (*s0 + g) - (strength - before) * w;
  *s0 = z;
  *s1 = n;
  float within = z < -c.l1 ? -c.l1 : z;  // l1 - z is -(z - l1), and z - z is 0.
  within = within > c.l1 ? c.l1 : within;
  const float updated = (within - z) / (strength + c.l2);
  return n == 0.0f ? w : updated;
}

// One element; the operations and their order are those of reference.cc.
template <Rule kRule>
CAPSTAN_INLINE float Update(const StepScalars& c, float w, float g, float* s0, float* s1) {
  if constexpr (kRule == Rule::kSgd) {
    return w - c.lr * g;
  } else if constexpr (kRule == Rule::kMomentum) {
    const float v = c.momentum * *s0 + g;
    *s0 = v;
    return w - c.lr * v;
  } else if constexpr (kRule == Rule::kNesterov) {
    const float v = c.momentum * *s0 + g;
    *s0 = v;
    return w - c.lr * (g + c.momentum * v);
  } else if constexpr (kRule == Rule::kAdagrad) {
    const float s = *s0 + g * g;
    *s0 = s;
    return w - (c.lr * g) / (std::sqrt(s) + c.epsilon);
  } else if constexpr (kRule == Rule::kRmsProp || kRule == Rule::kRmsPropMomentum) {
    const float s = c.beta2 * *s0 + (c.one_minus_beta2 * g) * g;
    *s0 = s;
    const float root = std::sqrt(s) + c.epsilon;
    if constexpr (kRule == Rule::kRmsProp) return w - (c.lr * g) / root;
    const float buffer = c.momentum * *s1 + g / root;
    *s1 = buffer;
    return w - c.lr * buffer;
  } else if constexpr (kRule == Rule::kFtrl) {
    return UpdateFtrl(c, w, g, s0, s1);
  } else {
    static_assert(kRule == Rule::kAdam);
    const float m = c.beta1 * *s0 + c.one_minus_beta1 * g;
    const float v = c.beta2 * *s1 + (c.one_minus_beta2 * g) * g;
    *s0 = m;
    *s1 = v;
    return w * c.keep - (c.lr * m) / (std::sqrt(v) * c.root_scale + c.epsilon);
  }
}

// g after clipping and L2 decay.
template <bool kDecay>
CAPSTAN_INLINE float Clipped(const StepScalars& c, float w, float g) {
  g = g < -c.clip ? -c.clip : g;
  g = g > c.clip ? c.clip : g;
  if constexpr (kDecay) g = g + c.weight_decay * w;
  return g;
}

// By value: the compiler then knows that no store changes the scalars or the pointers.
template <Rule kRule, bool kDecay>
CAPSTAN_INLINE void Loop(StepScalars c, Arrays a) {
  CAPSTAN_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < a.n; ++i) {
    const float w = a.in[i];
    const float g = a.gradient[i];
    if constexpr (kRule == Rule::kMovingAverage) {
      a.out[i] = w + c.momentum * (g - w);
    } else {
      a.out[i] = Update<kRule>(c, w, Clipped<kDecay>(c, w, g), a.s0 + i, a.s1 + i);
    }
  }
}

}  // namespace capstan::server::update_rule

#endif  // CAPSTAN_SERVER_OPTIMIZER_UPDATE_RULE_H_
