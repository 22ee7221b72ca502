// The code that the loops over dense ranges (update_loops.cc, trust_ratio.cc), over rows
// (row_loops.cc) and over blocks of plugins (plugin_loop.cc) share: the loop over elements that lie
// side by side, and the choice of instructions. The arithmetic of one element is that of
// kernels/cuda/element_rules.h. A CAPSTAN_INLINE function is compiled for the instruction set of
// the function that it is inlined into.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_OPTIMIZER_UPDATE_RULE_H_
#define CAPSTAN_SERVER_OPTIMIZER_UPDATE_RULE_H_

#include <cstdint>

#include "common/types/instruction_set.h"
#include "common/types/unaligned_float.h"
#include "kernels/cuda/element_rules.h"
#include "server/optimizer/config/optimizer_config.h"
#include "server/optimizer/step_scalars.h"

#define CAPSTAN_INLINE __attribute__((always_inline)) inline

namespace capstan::server::update_rule {

struct Arrays {
  int64_t n;
  const float* in;
  const UnalignedFloat* gradient;
  float* s0;  // A slot that the rule does not have points to out, and is never read.
  float* s1;
  float* s2;
  float* out;
};

// g after clipping and L2 decay.
template <bool kDecay>
CAPSTAN_INLINE float Gradient(const StepScalars& c, float w, float g) {
  g = kernels::cuda::Clipped(c, g);
  if constexpr (kDecay) g = g + c.weight_decay * w;
  return g;
}

// The arguments are values: the compiler then knows that no store changes the scalars or pointers.
// Where in == out, an iteration reads and writes the same element.
template <OptimizerKind kRule, bool kDecay>
CAPSTAN_INLINE void Loop(StepScalars c, Arrays a) {
  CAPSTAN_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < a.n; ++i) {
    const float w = a.in[i];
    float g = a.gradient[i];
    if constexpr (kRule != OptimizerKind::kMovingAverage) g = Gradient<kDecay>(c, w, g);
    a.out[i] = kernels::cuda::Stepped<kRule>(c, w, g, a.s0 + i, a.s1 + i, a.s2 + i);
  }
}

template <typename Body, typename... Arguments>
void RunBaseline(const Arguments&... arguments) {
  Body::Run(arguments...);
}

#if defined(__x86_64__)
template <typename Body, typename... Arguments>
__attribute__((target("avx2"))) void RunAvx2(const Arguments&... arguments) {
  Body::Run(arguments...);
}

template <typename Body, typename... Arguments>
__attribute__((target("avx512f"))) void RunAvx512(const Arguments&... arguments) {
  Body::Run(arguments...);
}
#endif

// Calls Body::Run(arguments...), which is CAPSTAN_INLINE, as it is compiled for `set`.
// REQUIRES: IsSupported(set).
template <typename Body, typename... Arguments>
void RunFor(InstructionSet set, const Arguments&... arguments) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return RunAvx512<Body>(arguments...);
    case InstructionSet::kAvx2:
      return RunAvx2<Body>(arguments...);
#endif
    default:
      return RunBaseline<Body>(arguments...);
  }
}

}  // namespace capstan::server::update_rule

#endif  // CAPSTAN_SERVER_OPTIMIZER_UPDATE_RULE_H_
