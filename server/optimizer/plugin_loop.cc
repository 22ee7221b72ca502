#include "server/optimizer/plugin_loop.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "server/optimizer/update_rule.h"

namespace capstan::server {
namespace {

using update_rule::Gradient;
using update_rule::RunFor;

// So many elements are handed to the rule at a time: their gradients fit into the first cache.
constexpr int64_t kBlock = 2048;

struct Gradients {
  int64_t n;
  const float* in;
  const UnalignedFloat* gradient;
  float* out;
};

template <bool kDecay>
struct GradientLoop {
  static CAPSTAN_INLINE void Run(StepScalars c, Gradients a) {
    CAPSTAN_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < a.n; ++i) a.out[i] = Gradient<kDecay>(c, a.in[i], a.gradient[i]);
  }
};

}  // namespace

PluginUpdate MakePluginUpdate(const OptimizerConfig& config, int64_t step) {
  return {.scalars = MakeStepScalars(config, step),
          .learning_rate = ScheduledLearningRate(config, step),
          .step = step};
}

void ApplyPluginRule(InstructionSet set, const OptimizerConfig& config, const PluginUpdate& update,
                     int64_t n, const float* in, const UnalignedFloat* gradient,
                     absl::Span<float* const> state, float* out) {
  std::array<float, kBlock> gradients;
  absl::InlinedVector<float*, CAPSTAN_RULE_STATES_MAX> slots(state.size());
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    const Gradients block = {count, in + begin, gradient + begin, gradients.data()};
    if (update.scalars.weight_decay != 0.0f) {
      RunFor<GradientLoop<true>>(set, update.scalars, block);
    } else {
      RunFor<GradientLoop<false>>(set, update.scalars, block);
    }
    for (size_t slot = 0; slot < state.size(); ++slot) slots[slot] = state[slot] + begin;
    config.plugin_rule->apply(config.plugin_numbers.data(), static_cast<uint64_t>(update.step),
                              update.learning_rate, count, in + begin, gradients.data(),
                              slots.data(), out + begin);
  }
}

}  // namespace capstan::server
