// Optimizer: applies an update to a range of elements; the server's arithmetic.
//
// OptimizerConfig is plain data (made from the job's protobuf by optimizer_from_proto.h). Symbols:
// w weight, g gradient, m/v state, t the update's number from 0, lr the schedule's value at t.
// The naive loops of reference.h are the specification; Apply is the fast form and gives the same bits
// whatever the range is cut into (elements are independent).
// Thread safety: thread-compatible; different ranges may be updated from different threads.
#ifndef CAPSTAN_SERVER_OPTIMIZER_OPTIMIZER_H_
#define CAPSTAN_SERVER_OPTIMIZER_OPTIMIZER_H_

#include <cstdint>

#include "absl/types/span.h"

namespace capstan::server {

enum class OptimizerKind { kSgd, kMomentum, kNesterov, kAdagrad, kRmsProp, kAdam, kAdamW, kMovingAverage };

enum class ScheduleKind { kConstant, kStep, kCosine };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t step_every = 1;
  float step_factor = 1.0f;
  int64_t cosine_steps = 1;
  float cosine_minimum = 0.0f;
  int64_t warmup_steps = 0;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.0f;
  ScheduleConfig schedule;
  float weight_decay = 0.0f;
  float clip_value = 0.0f;  // 0: off.
  float momentum = 0.9f;    // Momentum, Nesterov, RMSProp; kMovingAverage: weight of the new value.
  float beta1 = 0.9f, beta2 = 0.999f;
  float alpha = 0.99f;
  float epsilon = 1e-8f;
  float initial_accumulator = 0.0f;
};

// Floats of state kept for each element: 0, 1 or 2.
int StateSlots(const OptimizerConfig& config);

// Value that every state slot starts with.
float InitialState(const OptimizerConfig& config, int slot);

// lr at update `step` (from 0).
float LearningRate(const OptimizerConfig& config, int64_t step);

// Applies update number `step` (from 0) to n elements:  out = update(in, gradient, state).
//   in, out      [n] weights before and after; the same memory or disjoint
//   gradient     [n] read
//   state        StateSlots() arrays of [n], updated in place
// REQUIRES: state.size() == StateSlots(config).
void Apply(const OptimizerConfig& config, int64_t step, int64_t n, const float* in, const float* gradient,
           absl::Span<float* const> state, float* out);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_OPTIMIZER_H_
