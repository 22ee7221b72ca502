// The L2 norm of a gradient, and clipping by it. Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_GRADIENT_NORM_H_
#define CAPSTAN_WORKER_TRAINING_STEP_GRADIENT_NORM_H_

#include "absl/types/span.h"
#include "common/types/instruction_set.h"

namespace capstan::worker {

// Sums in double and in a fixed order. Finite inputs never overflow: (3.4e38)^2 * 2^40 < 1e308. The
// sum is not finite if any value is not.
double SumOfSquares(absl::Span<const float> values);

// Same as above, with the same bits, by the instructions of `set`. REQUIRES: IsSupported(set).
double SumOfSquaresWith(InstructionSet set, absl::Span<const float> values);

void Scale(float factor, absl::Span<float> values);

// The factor that scales a gradient with this sum of squares so that its norm is at most `limit`. 1
// if there is no limit (0).
float ClipFactor(double squares, double limit);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_GRADIENT_NORM_H_
