// StepScalars: what an update rule needs that is the same for all elements of one update.
//
// Computed once per Apply in double, then rounded to fp32 once: learning rate of the schedule, the
// bias corrections of Adam, the inverse rates of FTRL. Powers are by repeated squaring, so they do
// not depend on libm. Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_OPTIMIZER_STEP_SCALARS_H_
#define CAPSTAN_SERVER_OPTIMIZER_STEP_SCALARS_H_

#include <cstdint>

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/config/optimizer_config.h"

namespace capstan::server {

// FTRL's state holds 1 / lr, so that its rate cannot be 0. An update moves a weight by at most lr.
inline constexpr double kFtrlRateMin = 1e-15;

using StepScalars = kernels::cuda::UpdateScalars;

// lr at update `step` (from 0): the schedule's value times learning_rate_factor times
// min(1, (step + 1) / warmup_steps).
double ScheduledLearningRate(const OptimizerConfig& config, int64_t step);

StepScalars MakeStepScalars(const OptimizerConfig& config, int64_t step);

// The corrections of Adam's moments, which start from 0, for an element after `updates` updates.
struct AdamBias {
  double first = 1.0;       // 1 - beta1^updates.
  float root_scale = 1.0f;  // 1 / sqrt(1 - beta2^updates).
};
// REQUIRES: updates >= 1; a rule with Adam's moments.
AdamBias BiasOfAdam(const OptimizerConfig& config, int64_t updates);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_STEP_SCALARS_H_
