// ApplyPluginRule: updates contiguous elements by a rule of a plugin.
//
// The server clips the gradient and adds the decay, as for its own rules, and passes the result to
// the rule. Thread safety: a pure function, if the rule is (plugin/rule_check.h).
#ifndef CAPSTAN_SERVER_OPTIMIZER_PLUGIN_LOOP_H_
#define CAPSTAN_SERVER_OPTIMIZER_PLUGIN_LOOP_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/types/instruction_set.h"
#include "common/types/unaligned_float.h"
#include "server/optimizer/config/optimizer_config.h"
#include "server/optimizer/step_scalars.h"

namespace capstan::server {

// The arguments of one update, apart from its arrays.
struct PluginUpdate {
  StepScalars scalars;  // For clipping and decay.
  double learning_rate = 0.0;
  int64_t step = 0;  // The number that is passed to the rule, from 0.
};
// `step` (from 0) is that of the schedule and of the rule.
PluginUpdate MakePluginUpdate(const OptimizerConfig& config, int64_t step);

// The arrays are those of Apply (optimizer.h). REQUIRES: IsSupported(set); config.kind is kPlugin;
// state.size() is the rule's state_count.
void ApplyPluginRule(InstructionSet set, const OptimizerConfig& config, const PluginUpdate& update,
                     int64_t n, const float* in, const UnalignedFloat* gradient,
                     absl::Span<float* const> state, float* out);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_PLUGIN_LOOP_H_
