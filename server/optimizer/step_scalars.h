// StepScalars: what an update rule needs that is the same for all elements of one update.
//
// Computed once per Apply in double, then rounded to fp32 once: learning rate of the schedule, the
// bias corrections of Adam, the inverse rates of FTRL. Powers are by repeated squaring, so they do
// not depend on libm. Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_OPTIMIZER_STEP_SCALARS_H_
#define CAPSTAN_SERVER_OPTIMIZER_STEP_SCALARS_H_

#include <cstdint>

#include "server/optimizer/optimizer_config.h"

namespace capstan::server {

// FTRL's state holds 1 / lr, so that its rate cannot be 0. An update moves a weight by at most lr.
inline constexpr double kFtrlRateMin = 1e-15;

// Names as in README.md. Fields that a rule does not use hold harmless values.
struct StepScalars {
  float lr = 0.0f;    // The schedule's value; Adam and AdamW: divided by 1 - beta1^(step+1).
  float clip = 0.0f;  // Infinity when clipping is off.
  float weight_decay = 0.0f;  // Factor of w that is added to g. 0 for AdamW.
  float keep = 1.0f;          // AdamW: 1 - lr * weight_decay, multiplied with w.
  float momentum = 0.0f;
  float beta1 = 0.0f, one_minus_beta1 = 0.0f;
  float beta2 = 0.0f, one_minus_beta2 = 0.0f;  // RMSProp: alpha and 1 - alpha.
  float root_scale = 1.0f;                     // Adam: 1 / sqrt(1 - beta2^(step+1)).
  float epsilon = 0.0f;
  float beta = 0.0f, l1 = 0.0f, l2 = 0.0f;  // FTRL.
  float inverse_lr = 0.0f;         // FTRL: 1 / max(lr, kFtrlRateMin), finite; 0 for others.
  float inverse_lr_before = 0.0f;  // FTRL: that of the update before; at the first one, its own.
};

// lr at update `step` (from 0): the schedule's value times learning_rate_factor times
// min(1, (step + 1) / warmup_steps).
double ScheduledLearningRate(const OptimizerConfig& config, int64_t step);

StepScalars MakeStepScalars(const OptimizerConfig& config, int64_t step);

// What Adam's moments are divided by, as they start from 0: of an element after `updates` updates.
struct AdamBias {
  double first = 1.0;       // 1 - beta1^updates.
  float root_scale = 1.0f;  // 1 / sqrt(1 - beta2^updates).
};
// REQUIRES: updates >= 1; Adam or AdamW.
AdamBias BiasOfAdam(const OptimizerConfig& config, int64_t updates);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_STEP_SCALARS_H_
