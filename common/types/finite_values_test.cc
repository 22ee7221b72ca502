#include "common/types/finite_values.h"

#include <catch2/catch.hpp>
#include <limits>
#include <utility>
#include <vector>

namespace capstan::finite_values_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("AllFinite: one infinity or NaN is found, wherever it is") {
  std::vector<float> values(37, -std::numeric_limits<float>::max());
  CHECK(AllFinite(values));
  CHECK(AllFinite({}));
  for (const float wrong : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (float& value : values) {
      const float kept = std::exchange(value, wrong);
      CHECK_FALSE(AllFinite(values));
      value = kept;
    }
  }
}

TEST_CASE("CopyScaled: products are written, and one that is not finite is found") {
  std::vector<float> values(37, 1e30f), products(37);
  CHECK(CopyScaled(values, 0.5f, products.data()));
  CHECK(products == std::vector<float>(37, 0.5e30f));
  values.back() = kInfinity;
  CHECK_FALSE(CopyScaled(values, 0.5f, products.data()));
  values.back() = 1e38f;
  CHECK_FALSE(CopyScaled(values, 10.0f, products.data()));
  CHECK(products.front() == 1e31f);
}

}  // namespace
}  // namespace capstan::finite_values_test
