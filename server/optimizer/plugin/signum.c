// signum: signSGD with momentum (Bernstein et al., ICML 2018).  Numbers: {beta}, 0.9 by default.
//   v = beta*v + (1 - beta)*g;  w = w - lr*sign(v)
#include "capstan_rule.h"

static const char* Check(const double* numbers) {
  return numbers[0] >= 0 && numbers[0] < 1 ? 0 : "beta: expected [0, 1)";
}
static void Apply(const double* numbers, uint64_t step, double learning_rate, int64_t n,
                  const float* in, const float* gradient, float* const* state, float* out) {
  const float beta = (float)numbers[0], rest = (float)(1 - numbers[0]), lr = (float)learning_rate;
  (void)step;
  for (int64_t i = 0; i < n; ++i) {
    const float v = state[0][i] = beta * state[0][i] + rest * gradient[i];
    out[i] = in[i] - lr * (float)((v > 0) - (v < 0));
  }
}
static const double kBeta[] = {0.9};
static const CapstanRule kRules[] = {{"signum", 1, {0}, 0, 1, kBeta, Check, Apply}};
static const CapstanRulePlugin kPlugin = {CAPSTAN_RULE_INTERFACE, 1, kRules};
const CapstanRulePlugin* capstan_rule_plugin(void) { return &kPlugin; }
