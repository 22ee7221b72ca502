#include "server/optimizer/optimizer.h"

#include "common/types/instruction_set.h"
#include "kernels/cuda/element_rules.h"
#include "server/optimizer/step_scalars.h"
#include "server/optimizer/update_loops.h"

namespace capstan::server {

int StateSlots(const OptimizerConfig& config) {
  if (config.kind == OptimizerKind::kPlugin) return config.plugin_rule->state_count;
  return kernels::cuda::StateSlotsOf(RuleOf(config));
}

float InitialState(const OptimizerConfig& config, int slot) {
  if (config.kind == OptimizerKind::kPlugin) return config.plugin_rule->initial_state[slot];
  return config.kind == OptimizerKind::kAdagrad ? config.initial_accumulator : 0.0f;
}

void Apply(const OptimizerConfig& config, int64_t step, int64_t n, const float* in,
           const UnalignedFloat* gradient, absl::Span<float* const> state, float* out) {
  ApplyWith(BestInstructionSet(), config, step, n, in, gradient, state, out);
}

}  // namespace capstan::server
