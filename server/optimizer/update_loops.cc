#include "server/optimizer/update_loops.h"

#include <cmath>
#include <limits>

#include "server/optimizer/step_scalars.h"

// No iteration reads what another one writes (in == out is the same element), which the compiler
// cannot see from the pointers.
#if defined(__clang__)
#define CAPSTAN_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define CAPSTAN_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

#define CAPSTAN_INLINE __attribute__((always_inline)) inline

namespace capstan::server {
namespace {

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

// By value: the compiler then knows that no store changes the scalars or the pointers.
template <Rule kRule, bool kDecay>
CAPSTAN_INLINE void Loop(StepScalars c, Arrays a) {
  CAPSTAN_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < a.n; ++i) {
    const float w = a.in[i];
    float g = a.gradient[i];
    if constexpr (kRule == Rule::kMovingAverage) {
      a.out[i] = w + c.momentum * (g - w);
    } else {
      g = g < -c.clip ? -c.clip : g;
      g = g > c.clip ? c.clip : g;
      if constexpr (kDecay) g = g + c.weight_decay * w;
      a.out[i] = Update<kRule>(c, w, g, a.s0 + i, a.s1 + i);
    }
  }
}

template <Rule kRule, bool kDecay>
void LoopBaseline(const StepScalars& c, const Arrays& a) {
  Loop<kRule, kDecay>(c, a);
}

#if defined(__x86_64__)
template <Rule kRule, bool kDecay>
__attribute__((target("avx2"))) void LoopAvx2(const StepScalars& c, const Arrays& a) {
  Loop<kRule, kDecay>(c, a);
}

template <Rule kRule, bool kDecay>
__attribute__((target("avx512f"))) void LoopAvx512(const StepScalars& c, const Arrays& a) {
  Loop<kRule, kDecay>(c, a);
}
#endif

template <Rule kRule, bool kDecay>
void RunForm(InstructionSet set, const StepScalars& c, const Arrays& a) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return LoopAvx512<kRule, kDecay>(c, a);
    case InstructionSet::kAvx2:
      return LoopAvx2<kRule, kDecay>(c, a);
#endif
    default:
      return LoopBaseline<kRule, kDecay>(c, a);
  }
}

template <Rule kRule>
void RunRule(InstructionSet set, const StepScalars& c, const Arrays& a) {
  if (c.weight_decay != 0.0f) return RunForm<kRule, true>(set, c, a);
  return RunForm<kRule, false>(set, c, a);
}

}  // namespace

bool IsSupported(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f");
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2");
#endif
    default:
      return set == InstructionSet::kBaseline;
  }
}

InstructionSet BestInstructionSet() {
  static const InstructionSet best = [] {
    for (const InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2}) {
      if (IsSupported(set)) return set;
    }
    return InstructionSet::kBaseline;
  }();
  return best;
}

void ApplyWith(InstructionSet set, const OptimizerConfig& config, int64_t step, int64_t n,
               const float* in, const UnalignedFloat* gradient, absl::Span<float* const> state,
               float* out) {
  const StepScalars c = MakeStepScalars(config, step);
  const Arrays a = {
      n, in, gradient, state.size() > 0 ? state[0] : out, state.size() > 1 ? state[1] : out, out};
  switch (config.kind) {
    case OptimizerKind::kSgd:
      return RunRule<Rule::kSgd>(set, c, a);
    case OptimizerKind::kMomentum:
      return RunRule<Rule::kMomentum>(set, c, a);
    case OptimizerKind::kNesterov:
      return RunRule<Rule::kNesterov>(set, c, a);
    case OptimizerKind::kAdagrad:
      return RunRule<Rule::kAdagrad>(set, c, a);
    case OptimizerKind::kRmsProp:
      if (state.size() < 2) return RunRule<Rule::kRmsProp>(set, c, a);
      return RunRule<Rule::kRmsPropMomentum>(set, c, a);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return RunRule<Rule::kAdam>(set, c, a);
    case OptimizerKind::kFtrl:
      return RunRule<Rule::kFtrl>(set, c, a);
    case OptimizerKind::kMovingAverage:
      return RunForm<Rule::kMovingAverage, false>(set, c, a);
  }
}

}  // namespace capstan::server
