#include "server/optimizer/update_loops.h"

#include <cstddef>

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/plugin_loop.h"
#include "server/optimizer/step_scalars.h"
#include "server/optimizer/update_rule.h"

namespace capstan::server {
namespace {

using update_rule::Arrays;
using update_rule::Loop;
using update_rule::RunFor;
using Rule = OptimizerKind;

template <Rule kRule, bool kDecay>
struct DenseLoop {
  static CAPSTAN_INLINE void Run(const StepScalars& c, const Arrays& a) {
    Loop<kRule, kDecay>(c, a);
  }
};

template <Rule kRule>
void RunRule(InstructionSet set, const StepScalars& c, const Arrays& a) {
  if constexpr (kRule != Rule::kMovingAverage) {
    if (c.weight_decay != 0.0f) return RunFor<DenseLoop<kRule, true>>(set, c, a);
  }
  return RunFor<DenseLoop<kRule, false>>(set, c, a);
}

}  // namespace

void ApplyWith(InstructionSet set, const OptimizerConfig& config, int64_t step, int64_t n,
               const float* in, const UnalignedFloat* gradient, absl::Span<float* const> state,
               float* out) {
  if (config.kind == OptimizerKind::kPlugin) {
    const PluginUpdate update = MakePluginUpdate(config, step);
    return ApplyPluginRule(set, config, update, n, in, gradient, state, out);
  }
  const StepScalars c = MakeStepScalars(config, step);
  const auto slot = [&](size_t index) { return state.size() > index ? state[index] : out; };
  const Arrays a = {n, in, gradient, slot(0), slot(1), slot(2), out};
  kernels::cuda::WithRule(RuleOf(config), [&](auto rule) { RunRule<rule()>(set, c, a); });
}

}  // namespace capstan::server
