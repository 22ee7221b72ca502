// The L2 norm of a gradient, and clipping by it. Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_GRADIENT_NORM_H_
#define CAPSTAN_WORKER_TRAINING_GRADIENT_NORM_H_

#include "absl/types/span.h"

namespace capstan::worker {

// In double and in a fixed order. Finite inputs never overflow: (3.4e38)^2 * 2^40 < 1e308. Not
// finite if any value is not.
double SumOfSquares(absl::Span<const float> values);

void Scale(float factor, absl::Span<float> values);

// What a gradient whose squares sum up to `squares` is to be scaled by, so that its norm is at most
// `limit`. 1 without a limit (0).
float ClipFactor(double squares, double limit);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_GRADIENT_NORM_H_
