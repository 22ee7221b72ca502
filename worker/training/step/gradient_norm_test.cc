#include "worker/training/step/gradient_norm.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/random/philox.h"
#include "common/types/instruction_set.h"

namespace capstan::worker::gradient_norm_test {
namespace {

std::vector<float> Values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(ToUnitFloat(PhiloxWord(1, i)) - 0.5f, static_cast<int>(i % 40));
  }
  return values;
}

// Adds in the order on which the bits of a model depend whose gradients are clipped.
double InOrder(const std::vector<float>& values) {
  double lanes[8] = {};
  for (size_t i = 0; i < values.size(); ++i) lanes[i % 8] += double{values[i]} * double{values[i]};
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

TEST_CASE("Gradient norm: every instruction set has the same bits", "[worker][training]") {
  for (const InstructionSet set :
       {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (!IsSupported(set)) continue;
    for (const size_t count : {0, 1, 7, 8, 9, 64, 1003}) {
      const std::vector<float> values = Values(count);
      INFO("instruction set " << static_cast<int>(set) << ", " << count << " values");
      CHECK(SumOfSquaresWith(set, values) == InOrder(values));
    }
  }
}

TEST_CASE("Gradient norm: a value that is not finite shows, the largest floats do not overflow",
          "[worker][training]") {
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (size_t i = 0; i < 19; ++i) {
      std::vector<float> values = Values(19);
      values[i] = value;
      CHECK_FALSE(std::isfinite(SumOfSquares(values)));
    }
  }
  CHECK(std::isfinite(SumOfSquares(std::vector<float>(1000, std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace capstan::worker::gradient_norm_test
