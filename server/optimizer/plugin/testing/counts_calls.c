// A plugin that is refused: what its rule does depends on the calls before.
#include "server/optimizer/plugin/capstan_rule.h"

static int calls = 0;

static void Apply(const double* numbers, uint64_t step, double learning_rate, int64_t n,
                  const float* in, const float* gradient, float* const* state, float* out) {
  (void)numbers, (void)step, (void)learning_rate, (void)state;
  ++calls;
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] - gradient[i] / (float)calls;
}
static const CapstanRule kRules[] = {{"counts_calls", 0, {0}, 0, 0, 0, 0, Apply}};
static const CapstanRulePlugin kPlugin = {CAPSTAN_RULE_INTERFACE, 1, kRules};

const CapstanRulePlugin* capstan_rule_plugin(void) { return &kPlugin; }
