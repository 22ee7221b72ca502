// OptimizerConfig: which update rule a table uses, with every number it needs. Plain data, made
// from the job's protobuf by optimizer_from_proto.h. Numbers are fp32, as in the job file.
//
// Thread safety: values.
#ifndef CAPSTAN_SERVER_OPTIMIZER_CONFIG_OPTIMIZER_CONFIG_H_
#define CAPSTAN_SERVER_OPTIMIZER_CONFIG_OPTIMIZER_CONFIG_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/plugin/capstan_rule.h"

namespace capstan::server {

// The rules and what is known about each stand in kernels/cuda/element_rules.h.
using OptimizerKind = kernels::cuda::UpdateRule;

enum class ScheduleKind { kConstant, kStep, kCosine, kPieces };

// From update `begin` on the rate is multiplied by `factor`, >= 0.
struct RatePiece {
  int64_t begin = 0;
  float factor = 1.0f;
};

// Steps are updates applied to a shard, counted from 0.
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t step_every = 1;       // kStep: >= 1.
  float step_factor = 1.0f;     // kStep: (0, 1].
  int64_t cosine_steps = 1;     // kCosine: >= 1, updates until the minimum is reached.
  float cosine_minimum = 0.0f;  // kCosine: >= 0.
  // kPieces: by ascending `begin`, the first 0; not empty. Shared by the copies of the job's rules.
  std::shared_ptr<const std::vector<RatePiece>> pieces;
  int64_t warmup_steps = 0;  // >= 0. Linear warm-up, multiplied with the schedule's value.
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.0f;
  ScheduleConfig schedule;
  // The schedule's value is multiplied by it: a factor in (0, 1] times a trust ratio. It may change
  // between updates. 1 with FTRL, whose state depends on the rate of the update before.
  double learning_rate_factor = 1.0;
  float weight_decay = 0.0f;  // L2, added to the gradient; decoupled in kAdamW, kLion, kLamb.
  float clip_value = 0.0f;    // Gradient elements are clipped to [-v, v] before decay. 0: off.
  float momentum = 0.9f;      // Also of kMovingAverage: the weight of the new value.
  float beta1 = 0.9f, beta2 = 0.999f;  // Adam, AdamW, AMSGrad, Lion, LAMB.
  float alpha = 0.99f;                 // RMSProp.
  float epsilon = 1e-8f;  // Adagrad, RMSProp, Adam, AdamW, AMSGrad, LAMB; added after the root.
  float rho = 0.9f;       // Adadelta; its epsilon is added before the roots.
  float initial_accumulator = 0.0f;  // Adagrad.
  float trust_coefficient = 0.001f;  // LARS.
  bool has_trust_ratio = true;       // LARS, LAMB: false for tensors of one dimension.
  // Adagrad on rows of sparse tables: one accumulator a row, of the mean square of its gradient:
  //   s = s + mean(g * g);  w = w - (lr * g) / (sqrt(s) + eps)
  bool row_wise = false;
  float beta = 1.0f, l1 = 0.0f, l2 = 0.0f;  // FTRL; all >= 0.
  // kPlugin: the rule, which lives as long as the process, and its number_count numbers.
  const CapstanRule* plugin_rule = nullptr;
  std::vector<double> plugin_numbers;
};

// The rule that the loops run: config.kind, or the form of it that the numbers ask for.
inline OptimizerKind RuleOf(const OptimizerConfig& config) {
  const bool buffered = config.kind == OptimizerKind::kRmsProp && config.momentum > 0.0f;
  return buffered ? OptimizerKind::kRmsPropMomentum : config.kind;
}

// Whether the rate is scaled for each tensor: then TrustRatio (trust_ratio.h) comes before Apply.
inline bool IsLayerWise(const OptimizerConfig& config) {
  return kernels::cuda::TraitsOf(config.kind).layer_wise;
}

// The numbers that optimizers of a job file have fields for, by the field's name.
struct OptimizerNumberName {
  const char* name;
  float OptimizerConfig::*number;
};
inline constexpr OptimizerNumberName kOptimizerNumbers[] = {
    {"momentum", &OptimizerConfig::momentum},
    {"beta1", &OptimizerConfig::beta1},
    {"beta2", &OptimizerConfig::beta2},
    {"alpha", &OptimizerConfig::alpha},
    {"rho", &OptimizerConfig::rho},
    {"epsilon", &OptimizerConfig::epsilon},
    {"initial_accumulator", &OptimizerConfig::initial_accumulator},
    {"trust_coefficient", &OptimizerConfig::trust_coefficient},
    {"beta", &OptimizerConfig::beta},
    {"l1", &OptimizerConfig::l1},
    {"l2", &OptimizerConfig::l2},
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_CONFIG_OPTIMIZER_CONFIG_H_
