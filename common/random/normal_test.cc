#include "common/random/normal.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/random/philox.h"
#include "common/types/instruction_set.h"

namespace capstan::normal_test {
namespace {

// Words at the ends of their range and where the series are longest, beside others.
std::vector<uint32_t> Words() {
  std::vector<uint32_t> words = {0,          1,          2,          0x3FFFFFFF, 0x40000000,
                                 0x40000001, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xB504F332,
                                 0xB504F333, 0xB504F334, 0xC0000000, 0xFFFFFFFE, 0xFFFFFFFF};
  for (uint64_t i = 0; i < 2000; ++i) words.push_back(PhiloxWord(5, i));
  return words;
}

TEST_CASE("Normal: is what Box and Muller say, to the last bits of a double", "[common][random]") {
  const std::vector<uint32_t> words = Words();
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t a = words[i];
    const uint32_t b = words[(i * 7 + 3) % words.size()];
    const long double radius = std::sqrt(-2.0L * std::log((a + 1.0L) / 4294967296.0L));
    // The cosine is computed as a sine, which is exact where it is 0.
    const long double turn = std::fabs(b / 4294967296.0L - 0.5L) - 0.25L;
    const long double expected = radius * std::sin(2.0L * std::numbers::pi_v<long double> * turn);
    CHECK(std::fabs(NormalOf(a, b) - expected) <= 1e-15L * std::fabs(expected));
  }
}

// Rows that were never pushed are drawn again from a checkpoint's seed: other bits, other rows.
TEST_CASE("Normal: bits do not change from one version to the next", "[common][random]") {
  const std::vector<std::pair<uint32_t, uint32_t>> words = {
      {0, 0}, {1, 0xFFFFFFFF}, {0x12345678, 0x9ABCDEF0}, {0xDEADBEEF, 7}, {0xFFFFFFFE, 0x7FFFFFFF}};
  std::vector<uint64_t> bits;
  for (const auto& [a, b] : words) bits.push_back(std::bit_cast<uint64_t>(NormalOf(a, b)));
  CHECK(bits == std::vector<uint64_t>{0x401AA4499161CD47, 0x401A38DFE3405E49, 0xBFFD25E6F370F08F,
                                      0x3FE0E63CD7EDB6D4, 0xBEF6A09E6684E3F4});
}

TEST_CASE("Normal: every set of instructions gives the same bits", "[common][random]") {
  constexpr uint64_t kStream = 0x0123456789abcdef;
  constexpr double kScale = 0.3;
  for (const size_t count : {0, 1, 31, 32, 33, 500}) {
    for (const InstructionSet set :
         {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
      if (!IsSupported(set)) continue;
      std::vector<NormalPair> pairs(count);
      for (uint64_t i = 0; i < count; ++i) {
        pairs[i] = {.counter_low = ~i << 20, .counter_high = i << 33 | 2};
      }
      FillNormals(set, kStream, kScale, absl::MakeSpan(pairs));
      for (const NormalPair& pair : pairs) {
        const auto words = Philox4x32(kStream, pair.counter_low, pair.counter_high);
        CHECK(pair.first == static_cast<float>(NormalOf(words[0], words[1]) * kScale));
        CHECK(pair.second == static_cast<float>(NormalOf(words[2], words[3]) * kScale));
      }
    }
  }
}

}  // namespace
}  // namespace capstan::normal_test
