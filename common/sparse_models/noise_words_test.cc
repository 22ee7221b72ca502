#include "common/sparse_models/noise_words.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::noise_words_test {
namespace {

using Words = std::vector<NoiseWords::Word>;

constexpr uint64_t kDraws = 200'000;

void CheckShares(const Words& words, double power) {
  REQUIRE_OK_AND_ASSIGN(const NoiseWords noise, NoiseWords::Create(words, power));
  std::map<uint64_t, double> drawn;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const auto random = Philox4x32(9, i);
    drawn[noise.Draw(random[0], random[1])] += 1.0 / static_cast<double>(kDraws);
  }
  double sum = 0;
  for (const auto& word : words) sum += std::pow(static_cast<double>(word.count), power);
  for (const auto& word : words) {
    const double expected = std::pow(static_cast<double>(word.count), power) / sum;
    INFO("key " << word.key);
    // Five standard deviations.
    CHECK(drawn[word.key] ==
          Approx(expected).margin(5 * std::sqrt(expected / static_cast<double>(kDraws))));
  }
  CHECK(drawn.size() <= words.size());
}

TEST_CASE("Noise words: drawn by the power of their counts", "[sparse_models]") {
  const Words words = {{.key = 10, .count = 1000},
                       {.key = 7, .count = 1},
                       {.key = 8, .count = 30},
                       {.key = 9, .count = 30},
                       {.key = 11, .count = 400}};
  for (const double power : {0.0, 0.75, 1.0}) CheckShares(words, power);
  CheckShares({{.key = 3, .count = 5}}, 0.75);
  CheckShares({{.key = 3, .count = 5}, {.key = 4, .count = 5}}, 0.75);
}

TEST_CASE("Noise words: every pair of words draws a key", "[sparse_models]") {
  REQUIRE_OK_AND_ASSIGN(
      const NoiseWords noise,
      NoiseWords::Create(Words{{.key = 1, .count = 1}, {.key = 2, .count = 3}}, 1));
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  CHECK(noise.Draw(0, 0) == 1);
  CHECK(noise.Draw(0, kMax) == 2);
  CHECK(noise.Draw(kMax, 0) == 2);
  CHECK(noise.Draw(kMax, kMax) == 2);
}

TEST_CASE("Noise words: none, counts below 1 and other powers are refused", "[sparse_models]") {
  const auto refused = [](const Words& words, double power, const char* message) {
    CHECK_STATUS(NoiseWords::Create(words, power), absl::StatusCode::kInvalidArgument, message);
  };
  refused({}, 1, "0 words");
  refused({{.key = 4, .count = 0}}, 1, "key 4 has count 0, expected at least 1");
  refused({{.key = 4, .count = 1}}, -0.5, "power is -0.5");
  refused({{.key = 4, .count = 1}}, std::nan(""), "power is nan");
}

}  // namespace
}  // namespace capstan::noise_words_test
