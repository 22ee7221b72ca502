#include "server/optimizer/step_scalars.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

namespace capstan::server {
namespace {

// Returns base^exponent by repeated squaring. The relative error is at most about exponent * 2^-53.
double IntegerPower(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

double FactorAt(const std::vector<RatePiece>& pieces, int64_t step) {
  const auto later = [](int64_t at, const RatePiece& piece) { return at < piece.begin; };
  return std::prev(std::upper_bound(pieces.begin(), pieces.end(), step, later))->factor;
}

double ScheduleValue(const ScheduleConfig& schedule, double base, int64_t step) {
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return base;
    case ScheduleKind::kStep:
      return base * IntegerPower(schedule.step_factor, step / schedule.step_every);
    case ScheduleKind::kCosine: {
      if (step >= schedule.cosine_steps) return schedule.cosine_minimum;
      const double done = static_cast<double>(step) / static_cast<double>(schedule.cosine_steps);
      const double minimum = schedule.cosine_minimum;
      return minimum + (base - minimum) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    }
    case ScheduleKind::kPieces:
      return base * FactorAt(*schedule.pieces, step);
  }
  return base;
}

float InverseLearningRate(const OptimizerConfig& config, int64_t step) {
  return static_cast<float>(1.0 / std::max(ScheduledLearningRate(config, step), kFtrlRateMin));
}

void SetBetas(const OptimizerConfig& config, StepScalars* scalars) {
  scalars->beta1 = config.beta1;
  scalars->beta2 = config.beta2;
  scalars->one_minus_beta1 = static_cast<float>(1.0 - double{config.beta1});
  scalars->one_minus_beta2 = static_cast<float>(1.0 - double{config.beta2});
}

void SetAdam(const OptimizerConfig& config, double lr, int64_t step, StepScalars* scalars) {
  SetBetas(config, scalars);
  const AdamBias bias = BiasOfAdam(config, step + 1);
  scalars->lr = static_cast<float>(lr / bias.first);
  scalars->root_scale = bias.root_scale;
}

void SetDecoupledDecay(const OptimizerConfig& config, double lr, StepScalars* scalars) {
  scalars->keep = static_cast<float>(1.0 - lr * config.weight_decay);
  scalars->weight_decay = 0.0f;
}

void SetFtrl(const OptimizerConfig& config, int64_t step, StepScalars* scalars) {
  scalars->beta = config.beta;
  scalars->l1 = config.l1;
  scalars->l2 = config.l2;
  scalars->inverse_lr = InverseLearningRate(config, step);
  scalars->inverse_lr_before = InverseLearningRate(config, std::max<int64_t>(step - 1, 0));
}

}  // namespace

double ScheduledLearningRate(const OptimizerConfig& config, int64_t step) {
  const ScheduleConfig& schedule = config.schedule;
  const double value =
      ScheduleValue(schedule, config.learning_rate, step) * config.learning_rate_factor;
  if (step >= schedule.warmup_steps) return value;
  return value * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
}

StepScalars MakeStepScalars(const OptimizerConfig& config, int64_t step) {
  const double lr = ScheduledLearningRate(config, step);
  StepScalars scalars;
  scalars.lr = static_cast<float>(lr);
  scalars.clip =
      config.clip_value > 0.0f ? config.clip_value : std::numeric_limits<float>::infinity();
  scalars.weight_decay = config.weight_decay;
  scalars.momentum = config.momentum;
  scalars.epsilon = config.epsilon;
  switch (config.kind) {
    case OptimizerKind::kRmsProp:
      scalars.beta2 = config.alpha;
      scalars.one_minus_beta2 = static_cast<float>(1.0 - config.alpha);
      break;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAmsGrad:
      SetAdam(config, lr, step, &scalars);
      break;
    case OptimizerKind::kAdamW:
      SetAdam(config, lr, step, &scalars);
      SetDecoupledDecay(config, lr, &scalars);
      break;
    case OptimizerKind::kFtrl:
      SetFtrl(config, step, &scalars);
      break;
    case OptimizerKind::kAdadelta:
      scalars.beta2 = config.rho;
      scalars.one_minus_beta2 = static_cast<float>(1.0 - double{config.rho});
      break;
    case OptimizerKind::kLamb: {
      SetBetas(config, &scalars);
      const AdamBias bias = BiasOfAdam(config, step + 1);
      scalars.moment_scale = static_cast<float>(1.0 / bias.first);
      scalars.root_scale = bias.root_scale;
      scalars.step_decay = std::exchange(scalars.weight_decay, 0.0f);
      break;
    }
    case OptimizerKind::kLion:
      SetBetas(config, &scalars);
      SetDecoupledDecay(config, lr, &scalars);
      break;
    default:  // The rate, the decay, momentum and epsilon are all that the others need.
      break;
  }
  return scalars;
}

AdamBias BiasOfAdam(const OptimizerConfig& config, int64_t updates) {
  const double second = 1.0 - IntegerPower(config.beta2, updates);
  return {.first = 1.0 - IntegerPower(config.beta1, updates),
          .root_scale = static_cast<float>(1.0 / std::sqrt(second))};
}

}  // namespace capstan::server
