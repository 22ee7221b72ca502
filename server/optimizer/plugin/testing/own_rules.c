// Rules for tests: momentum, adam and adagrad (with initial_accumulator 0.5) of the servers,
// operation by operation, so that both give the same bits.
#include <math.h>

#include "server/optimizer/plugin/capstan_rule.h"

static void Momentum(const double* numbers, uint64_t step, double learning_rate, int64_t n,
                     const float* in, const float* gradient, float* const* state, float* out) {
  const float momentum = (float)numbers[0];
  const float lr = (float)learning_rate;
  (void)step;
  for (int64_t i = 0; i < n; ++i) {
    const float v = momentum * state[0][i] + gradient[i];
    state[0][i] = v;
    out[i] = in[i] - lr * v;
  }
}

static const char* CheckMomentum(const double* numbers) {
  return numbers[0] >= 0 && numbers[0] < 1 ? 0 : "momentum: expected [0, 1)";
}

static double Power(double base, uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

// numbers: beta1, beta2, epsilon, each a float.
static void Adam(const double* numbers, uint64_t step, double learning_rate, int64_t n,
                 const float* in, const float* gradient, float* const* state, float* out) {
  const float beta1 = (float)numbers[0], beta2 = (float)numbers[1], epsilon = (float)numbers[2];
  const float rest1 = (float)(1.0 - (double)beta1), rest2 = (float)(1.0 - (double)beta2);
  const float lr = (float)(learning_rate / (1.0 - Power((double)beta1, step + 1)));
  const float scale = (float)(1.0 / sqrt(1.0 - Power((double)beta2, step + 1)));
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i];
    const float m = beta1 * state[0][i] + rest1 * g;
    const float v = beta2 * state[1][i] + (rest2 * g) * g;
    state[0][i] = m;
    state[1][i] = v;
    out[i] = in[i] - (lr * m) / (sqrtf(v) * scale + epsilon);
  }
}

static void Adagrad(const double* numbers, uint64_t step, double learning_rate, int64_t n,
                    const float* in, const float* gradient, float* const* state, float* out) {
  const float lr = (float)learning_rate;
  (void)numbers;
  (void)step;
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i];
    const float s = state[0][i] + g * g;
    state[0][i] = s;
    out[i] = in[i] - (lr * g) / (sqrtf(s) + 1e-10f);
  }
}

static const double kMomentum[] = {0.9};
static const double kAdam[] = {0.9, 0.999, 1e-8};

static const CapstanRule kRules[] = {
    {"momentum", 1, {0}, 0, 1, kMomentum, CheckMomentum, Momentum},
    {"adam", 2, {0, 0}, 1, 3, kAdam, 0, Adam},
    {"adagrad_from_half", 1, {0.5f}, 0, 0, 0, 0, Adagrad},
};
static const CapstanRulePlugin kPlugin = {CAPSTAN_RULE_INTERFACE, 3, kRules};

const CapstanRulePlugin* capstan_rule_plugin(void) { return &kPlugin; }
