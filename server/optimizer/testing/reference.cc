#include "server/optimizer/testing/reference.h"

#include <cmath>
#include <limits>
#include <vector>

#include "server/optimizer/step_scalars.h"

namespace capstan::server {
namespace {

// Returns g after clipping and L2 decay. A NaN stays a NaN. Without decay an infinite w leaves g
// alone.
float Gradient(const StepScalars& c, float w, float g) {
  if (g < -c.clip) g = -c.clip;
  if (g > c.clip) g = c.clip;
  if (c.weight_decay != 0.0f) g = g + c.weight_decay * w;
  return g;
}

// State that decays ends at 0, not at a denormal.
float Decayed(float state) {
  return std::fpclassify(state) == FP_SUBNORMAL || state == 0.0f ? 0.0f : state;
}

float Adam(const StepScalars& c, float w, float g, float* m, float* v) {
  *m = Decayed(c.beta1 * *m + c.one_minus_beta1 * g);
  *v = Decayed(c.beta2 * *v + (c.one_minus_beta2 * g) * g);
  return w - (c.lr * *m) / (std::sqrt(*v) * c.root_scale + c.epsilon);
}

float AmsGrad(const StepScalars& c, float w, float g, float* m, float* v, float* largest) {
  *m = Decayed(c.beta1 * *m + c.one_minus_beta1 * g);
  *v = Decayed(c.beta2 * *v + (c.one_minus_beta2 * g) * g);
  if (!(*largest >= *v)) *largest = *v;  // A NaN of v passes on.
  return w - (c.lr * *m) / (std::sqrt(*largest) * c.root_scale + c.epsilon);
}

float RmsProp(const StepScalars& c, float w, float g, float* s, float* buffer) {
  *s = Decayed(c.beta2 * *s + (c.one_minus_beta2 * g) * g);
  const float root = std::sqrt(*s) + c.epsilon;
  if (buffer == nullptr) return w - (c.lr * g) / root;
  *buffer = Decayed(c.momentum * *buffer + g / root);
  return w - c.lr * *buffer;
}

float Lion(const StepScalars& c, float w, float g, float* m) {
  const float mixed = c.beta1 * *m + c.one_minus_beta1 * g;
  *m = Decayed(c.beta2 * *m + c.one_minus_beta2 * g);
  float sign = mixed;  // 0 stays 0, and a NaN stays a NaN.
  if (mixed > 0.0f) sign = 1.0f;
  if (mixed < 0.0f) sign = -1.0f;
  return w - c.lr * sign;
}

float Adadelta(const StepScalars& c, float w, float g, float* s, float* u) {
  *s = Decayed(c.beta2 * *s + (c.one_minus_beta2 * g) * g);
  const float step = std::sqrt(*u + c.epsilon) / std::sqrt(*s + c.epsilon) * g;
  *u = Decayed(c.beta2 * *u + (c.one_minus_beta2 * step) * step);
  return w - c.lr * step;
}

// Returns how strongly FTRL holds a weight where it has been: 1 / its rate, or 0 before the first
// gradient.
float FtrlStrength(const StepScalars& c, float n, float inverse_lr) {
  return n == 0.0f ? 0.0f : (c.beta + std::sqrt(n)) * inverse_lr;
}

float Ftrl(const StepScalars& c, float w, float g, float* z, float* n) {
  const float before = FtrlStrength(c, *n, c.inverse_lr_before);
  *n = *n + g * g;
  if (*n > std::numeric_limits<float>::max()) *n = std::numeric_limits<float>::max();
  const float strength = FtrlStrength(c, *n, c.inverse_lr);
  *z = (*z + g) - (strength - before) * w;
  if (*n == 0.0f) return w;
  if (std::abs(*z) <= c.l1) return 0.0f;
  const float beyond = *z < 0.0f ? *z + c.l1 : *z - c.l1;
  return -beyond / (strength + c.l2);
}

// Returns the L2 norm; element i counts in lane i mod 16, and lanes are added by halves.
double Norm(int64_t n, const float* x) {
  double lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] += double{x[i]} * double{x[i]};
  for (int half = 8; half >= 1; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return std::sqrt(lanes[0]);
}

// Returns lr times the trust ratio, which divides by the norm of `step`.
float ScaledRate(OptimizerConfig config, int64_t update, int64_t n, const float* w,
                 const float* step) {
  const double numerator = Norm(n, w);
  double denominator = Norm(n, step);
  double factor = 1.0;
  if (config.kind == OptimizerKind::kLars && denominator != 0.0) {
    denominator += double{config.weight_decay} * numerator;
    factor = config.trust_coefficient;
  }
  const bool has_ratio = config.has_trust_ratio && numerator != 0.0 && denominator != 0.0;
  if (has_ratio) config.learning_rate_factor *= factor * numerator / denominator;
  return static_cast<float>(ScheduledLearningRate(config, update));
}

void Lars(const OptimizerConfig& config, int64_t update, int64_t n, const float* in,
          const float* gradient, float* v, float* out) {
  StepScalars c = MakeStepScalars(config, update);
  StepScalars only_clip = c;
  only_clip.weight_decay = 0.0f;
  std::vector<float> clipped;
  for (int64_t i = 0; i < n; ++i) clipped.push_back(Gradient(only_clip, in[i], gradient[i]));
  c.lr = ScaledRate(config, update, n, in, clipped.data());
  for (int64_t i = 0; i < n; ++i) {
    v[i] = Decayed(c.momentum * v[i] + c.lr * Gradient(c, in[i], gradient[i]));
    out[i] = in[i] - v[i];
  }
}

void Lamb(const OptimizerConfig& config, int64_t update, int64_t n, const float* in,
          const float* gradient, float* m, float* v, float* out) {
  const StepScalars c = MakeStepScalars(config, update);
  std::vector<float> step;
  for (int64_t i = 0; i < n; ++i) {
    const float g = Gradient(c, in[i], gradient[i]);
    m[i] = Decayed(c.beta1 * m[i] + c.one_minus_beta1 * g);
    v[i] = Decayed(c.beta2 * v[i] + (c.one_minus_beta2 * g) * g);
    const float adam = (c.moment_scale * m[i]) / (std::sqrt(v[i]) * c.root_scale + c.epsilon);
    step.push_back(adam + config.weight_decay * in[i]);
  }
  const float lr = ScaledRate(config, update, n, in, step.data());
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] - lr * step[static_cast<size_t>(i)];
}

}  // namespace

void ApplyReference(const OptimizerConfig& config, int64_t step, int64_t n, const float* in,
                    const float* gradient, absl::Span<float* const> state, float* out) {
  if (config.kind == OptimizerKind::kLars) {
    return Lars(config, step, n, in, gradient, state[0], out);
  }
  if (config.kind == OptimizerKind::kLamb) {
    return Lamb(config, step, n, in, gradient, state[0], state[1], out);
  }
  const StepScalars c = MakeStepScalars(config, step);
  for (int64_t i = 0; i < n; ++i) {
    const float w = in[i];
    const float g = Gradient(c, w, gradient[i]);
    float* const s0 = state.size() > 0 ? state[0] + i : nullptr;
    float* const s1 = state.size() > 1 ? state[1] + i : nullptr;
    float* const s2 = state.size() > 2 ? state[2] + i : nullptr;
    switch (config.kind) {
      case OptimizerKind::kSgd:
        out[i] = w - c.lr * g;
        break;
      case OptimizerKind::kMomentum:
        *s0 = Decayed(c.momentum * *s0 + g);
        out[i] = w - c.lr * *s0;
        break;
      case OptimizerKind::kNesterov:
        *s0 = Decayed(c.momentum * *s0 + g);
        out[i] = w - c.lr * (g + c.momentum * *s0);
        break;
      case OptimizerKind::kAdagrad:
        *s0 = *s0 + g * g;
        out[i] = w - (c.lr * g) / (std::sqrt(*s0) + c.epsilon);
        break;
      case OptimizerKind::kRmsProp:
      case OptimizerKind::kRmsPropMomentum:
        out[i] = RmsProp(c, w, g, s0, s1);
        break;
      case OptimizerKind::kAdam:
      case OptimizerKind::kAdamW:
        out[i] = Adam(c, w * c.keep, g, s0, s1);
        break;
      case OptimizerKind::kAmsGrad:
        out[i] = AmsGrad(c, w, g, s0, s1, s2);
        break;
      case OptimizerKind::kAdadelta:
        out[i] = Adadelta(c, w, g, s0, s1);
        break;
      case OptimizerKind::kFtrl:
        out[i] = Ftrl(c, w, g, s0, s1);
        break;
      case OptimizerKind::kLion:
        out[i] = Lion(c, w * c.keep, g, s0);
        break;
      case OptimizerKind::kMovingAverage:
        out[i] = w + c.momentum * (gradient[i] - w);
        break;
      case OptimizerKind::kLars:
      case OptimizerKind::kLamb:
        break;  // Above.
      case OptimizerKind::kPlugin:
        break;  // It has no specification here.
    }
  }
}

}  // namespace capstan::server
