#include "server/optimizer/update_loops.h"

#include <cstddef>

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/step_scalars.h"
#include "server/optimizer/update_rule.h"

namespace capstan::server {
namespace {

using update_rule::Arrays;
using update_rule::Loop;
using Rule = OptimizerKind;

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
  if constexpr (kRule != Rule::kMovingAverage) {
    if (c.weight_decay != 0.0f) return RunForm<kRule, true>(set, c, a);
  }
  return RunForm<kRule, false>(set, c, a);
}

}  // namespace

void ApplyWith(InstructionSet set, const OptimizerConfig& config, int64_t step, int64_t n,
               const float* in, const UnalignedFloat* gradient, absl::Span<float* const> state,
               float* out) {
  const StepScalars c = MakeStepScalars(config, step);
  const auto slot = [&](size_t index) { return state.size() > index ? state[index] : out; };
  const Arrays a = {n, in, gradient, slot(0), slot(1), slot(2), out};
  kernels::cuda::WithRule(RuleOf(config), [&](auto rule) { RunRule<rule()>(set, c, a); });
}

}  // namespace capstan::server
