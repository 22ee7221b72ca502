#include "worker/training/gradient_norm.h"

#include <cmath>
#include <cstddef>

namespace capstan::worker {

// Keeps eight running sums, each of every eighth element, so that the compiler can vectorise the
// loop without changing the order.
double SumOfSquares(absl::Span<const float> values) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) {
      const double v = values[i + k];
      lanes[k] += v * v;
    }
  }
  for (size_t i = whole; i < values.size(); ++i) {
    const double v = values[i];
    lanes[i - whole] += v * v;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void Scale(float factor, absl::Span<float> values) {
  if (factor == 1.0f) return;
  for (float& value : values) value *= factor;
}

float ClipFactor(double squares, double limit) {
  const double norm = std::sqrt(squares);
  return limit > 0 && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
}

}  // namespace capstan::worker
