// Optimizer: applies an update to a range of elements; the server's arithmetic.
//
// The rules and their symbols stand in README.md; the naive loops of testing/reference.h are the
// specification. Apply is the fast form and gives the same bits whatever the range is cut into and
// whichever instructions the CPU has (elements are independent, nothing is fused or reordered).
// The payload and the sign of a NaN are not specified; that a result is NaN is.
// Thread safety: pure functions; different ranges may be updated from different threads.
#ifndef CAPSTAN_SERVER_OPTIMIZER_OPTIMIZER_H_
#define CAPSTAN_SERVER_OPTIMIZER_OPTIMIZER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/types/unaligned_float.h"
#include "server/optimizer/config/optimizer_config.h"

namespace capstan::server {

// Floats of state kept for each element, 0 to 3 (RMSProp: 2 with momentum, otherwise 1; a rule of a
// plugin: as its table says).
int StateSlots(const OptimizerConfig& config);

// Value that every element of state slot `slot` starts with. REQUIRES: 0 <= slot < StateSlots().
float InitialState(const OptimizerConfig& config, int slot);

// Applies update number `step` (from 0) to n elements:  out = update(in, gradient, state).
//   in, out      [n] weights before and after; the same memory or disjoint
//   gradient     [n] read; disjoint from out and state
//   state        StateSlots() arrays of [n], updated in place; disjoint from each other, in and out
// REQUIRES: n >= 0; state.size() == StateSlots(config). No alignment is asked for. If the rule
// is layer-wise, TrustRatio has seen the tensor, and its value is part of
// config.learning_rate_factor.
// Cost: memory bound; README.md has the bytes per element of each rule.
void Apply(const OptimizerConfig& config, int64_t step, int64_t n, const float* in,
           const UnalignedFloat* gradient, absl::Span<float* const> state, float* out);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_OPTIMIZER_H_
