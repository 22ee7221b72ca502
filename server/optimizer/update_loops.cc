#include "server/optimizer/update_loops.h"

#include "server/optimizer/step_scalars.h"
#include "server/optimizer/update_rule.h"

namespace capstan::server {
namespace {

using update_rule::Arrays;
using update_rule::Loop;
using update_rule::Rule;

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
