#include "server/optimizer/late_gradient.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/random/philox.h"

namespace capstan::server::late_gradient_test {
namespace {

std::vector<float> Numbers(uint64_t key, int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(4.0f * (ToUnitFloat(PhiloxWord(key, i)) - 0.5f));
  }
  return numbers;
}

std::vector<float> Corrected(const LateGradient& rule, const std::vector<float>& gradient,
                             const std::vector<float>& now, const std::vector<float>& pulled) {
  std::vector<float> out(gradient.size());
  CorrectLateGradient(rule, static_cast<int64_t>(gradient.size()), gradient.data(), now.data(),
                      pulled.data(), out.data());
  return out;
}

TEST_CASE("Late gradient: results worked out by hand", "[server][optimizer]") {
  const std::vector<float> gradient = {2.0f, -2.0f, 0.0f, 0.5f};
  const std::vector<float> now = {1.0f, 1.0f, 5.0f, -1.0f};
  const std::vector<float> pulled = {0.5f, 0.5f, -5.0f, 3.0f};

  SECTION("the divisor alone") {
    CHECK(Corrected({.divisor = 4}, gradient, now, pulled) ==
          std::vector<float>{0.5f, -0.5f, 0.0f, 0.125f});
  }
  SECTION("delay compensation alone: g + lambda * g * g * (now - pulled)") {
    CHECK(Corrected({.delay_compensation = 0.25f}, gradient, now, pulled) ==
          std::vector<float>{2.5f, -1.5f, 0.0f, 0.25f});
  }
  SECTION("both: the compensated gradient is divided") {
    CHECK(Corrected({.divisor = 2, .delay_compensation = 0.25f}, gradient, now, pulled) ==
          std::vector<float>{1.25f, -0.75f, 0.0f, 0.125f});
  }
  SECTION("what is compensated is clipped, and what is clipped is divided") {
    CHECK(Corrected({.divisor = 2, .delay_compensation = 0.25f, .clip_value = 1.0f}, gradient, now,
                    pulled) == std::vector<float>{0.5f, -0.5f, 0.0f, 0.125f});
  }
  SECTION("nothing is corrected") { CHECK(Corrected({}, gradient, now, pulled) == gradient); }
  SECTION("no element") { CHECK(Corrected({.divisor = 3}, {}, {}, {}).empty()); }
}

TEST_CASE("Late gradient: the bits of the formula, whatever the range is cut into",
          "[server][optimizer]") {
  const int64_t count = GENERATE(1, 7, 4096, 10'001);
  const LateGradient rule{.divisor = 3, .delay_compensation = 0.04f, .clip_value = 1.5f};
  const std::vector<float> gradient = Numbers(1, count), now = Numbers(2, count),
                           pulled = Numbers(3, count);
  const std::vector<float> corrected = Corrected(rule, gradient, now, pulled);
  for (size_t i = 0; i < corrected.size(); ++i) {
    // `volatile`: each operation rounds to fp32.
    const volatile float scaled = 0.04f * gradient[i];
    const volatile float squared = scaled * gradient[i];
    const volatile float moved = now[i] - pulled[i];
    const volatile float change = squared * moved;
    const volatile float sum = gradient[i] + change;
    const volatile float clipped = std::min(std::max(float{sum}, -1.5f), 1.5f);
    const volatile float expected = clipped / 3.0f;
    REQUIRE(std::bit_cast<uint32_t>(corrected[i]) == std::bit_cast<uint32_t>(float{expected}));
  }

  const int64_t cut = count / 3;
  std::vector<float> pieces(corrected.size());
  CorrectLateGradient(rule, cut, gradient.data(), now.data(), pulled.data(), pieces.data());
  CorrectLateGradient(rule, count - cut, gradient.data() + cut, now.data() + cut,
                      pulled.data() + cut, pieces.data() + cut);
  CHECK(pieces == corrected);
}

TEST_CASE("Late gradient: a NaN stays one, so that divergence is seen", "[server][optimizer]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const LateGradient rule{.divisor = 2, .delay_compensation = 0.1f, .clip_value = 1.0f};
  CHECK(std::isnan(Corrected(rule, {nan}, {1.0f}, {0.0f})[0]));
  CHECK(std::isnan(Corrected(rule, {1.0f}, {nan}, {0.0f})[0]));
}

}  // namespace
}  // namespace capstan::server::late_gradient_test
