#include "server/optimizer/trust_ratio.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/update_rule.h"

namespace capstan::server {
namespace {

using update_rule::Arrays;
using update_rule::RunFor;

constexpr int64_t kLanes = TrustRatio::kLanes;

// Writes the directions of the elements to a.out.
template <OptimizerKind kRule>
struct DirectionLoop {
  static CAPSTAN_INLINE void Run(StepScalars c, Arrays a) {
    CAPSTAN_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < a.n; ++i) {
      const float g = kernels::cuda::Clipped(c, a.gradient[i]);
      a.out[i] = kernels::cuda::Direction<kRule>(c, a.in[i], g, a.s0 + i, a.s1 + i);
    }
  }
};

// Adds the square of element i to sum number i % kLanes.
struct SquaresLoop {
  static CAPSTAN_INLINE void Run(int64_t n, const float* x, double* sums) {
    double lanes[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = sums[lane];
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
      }
    }
    for (int64_t lane = 0; i + lane < n; ++lane) {
      lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] = lanes[lane];
  }
};

double Norm(std::array<double, kLanes> sums) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return std::sqrt(sums[0]);
}

}  // namespace

TrustRatio::TrustRatio(const OptimizerConfig& config, int64_t step, InstructionSet set)
    : config_(config), scalars_(MakeStepScalars(config, step)), set_(set) {}

void TrustRatio::Add(int64_t n, const float* in, const UnalignedFloat* gradient,
                     absl::Span<float* const> state) {
  constexpr int64_t kPiece = 512;  // Directions that are in the cache when they are squared.
  static_assert(kPiece % kLanes == 0);
  std::array<float, kPiece> directions;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t size = std::min(kPiece, n - begin);
    const auto slot = [&](size_t index) {
      return state.size() > index ? state[index] + begin : directions.data();
    };
    const Arrays arrays = {size,    in + begin, gradient + begin, slot(0),
                           slot(1), slot(2),    directions.data()};
    kernels::cuda::WithRule(config_.kind, [&](auto rule) {
      if constexpr (kernels::cuda::TraitsOf(rule()).layer_wise) {
        RunFor<DirectionLoop<rule()>>(set_, scalars_, arrays);
      }
    });
    RunFor<SquaresLoop>(set_, size, in + begin, weights_.data());
    RunFor<SquaresLoop>(set_, size, static_cast<const float*>(directions.data()),
                        directions_.data());
  }
}

double TrustRatio::Value() const {
  if (!config_.has_trust_ratio) return 1.0;
  const double weights = Norm(weights_);
  const double directions = Norm(directions_);
  if (weights == 0.0 || directions == 0.0) return 1.0;
  if (config_.kind == OptimizerKind::kLamb) return weights / directions;
  const double decay = double{config_.weight_decay} * weights;
  return double{config_.trust_coefficient} * weights / (directions + decay);
}

}  // namespace capstan::server
