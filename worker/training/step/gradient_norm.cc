#include "worker/training/step/gradient_norm.h"

#include <cmath>
#include <cstddef>

namespace capstan::worker {
namespace {

// Keeps eight running sums, each of every eighth element, so that the compiler can vectorise the
// loop without changing the order. The square of a float is exact in double, so that all forms have
// the same bits, with or without fused multiply-adds.
inline __attribute__((always_inline)) double Loop(const float* values, size_t count) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) {
      const double v = values[i + k];
      lanes[k] += v * v;
    }
  }
  for (size_t i = whole; i < count; ++i) {
    const double v = values[i];
    lanes[i - whole] += v * v;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) double LoopAvx2(const float* values, size_t count) {
  return Loop(values, count);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) double LoopAvx512(const float* values,
                                                                             size_t count) {
  return Loop(values, count);
}
#endif

}  // namespace

double SumOfSquaresWith(InstructionSet set, absl::Span<const float> values) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512) return LoopAvx512(values.data(), values.size());
  if (set == InstructionSet::kAvx2) return LoopAvx2(values.data(), values.size());
#endif
  static_cast<void>(set);
  return Loop(values.data(), values.size());
}

double SumOfSquares(absl::Span<const float> values) {
  return SumOfSquaresWith(BestInstructionSet(), values);
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
