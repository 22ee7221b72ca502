#include "common/random/normal.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "common/random/philox.h"

namespace capstan {
namespace {

#define CAPSTAN_INLINE __attribute__((always_inline)) inline

constexpr double kTwo52 = 0x1p52;  // Doubles from here on are whole numbers, in their low bits.

// Converts w < 2^52. Vectors cannot convert whole numbers on every processor.
CAPSTAN_INLINE double ToDouble(uint64_t w) {
  return std::bit_cast<double>(w | std::bit_cast<uint64_t>(kTwo52)) - kTwo52;
}

// Returns the natural logarithm of u in [2^-32, 1]: u = 2^e m with m in [sqrt(1/2), sqrt(2)), and
// log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.172.
CAPSTAN_INLINE double LogOf(double u) {
  constexpr uint64_t kRootHalf = 0x3FE6A09E667F3BCD;
  constexpr uint64_t kOne = uint64_t{1023} << 52;
  const auto bits = std::bit_cast<uint64_t>(u);
  const uint64_t biased = (bits - kRootHalf + kOne) >> 52;  // e + 1023.
  const auto m = std::bit_cast<double>(bits - (biased << 52) + kOne);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 23;
  series = series * z + 1.0 / 21;
  series = series * z + 1.0 / 19;
  series = series * z + 1.0 / 17;
  series = series * z + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  const double e = ToDouble(biased) - 1023.0;
  return e * std::numbers::ln2 + (2.0 * s + (2.0 * s) * (z * series));
}

// Returns cos(2 pi v) for v in [0, 1), as the sine of an angle in [-pi / 2, pi / 2].
CAPSTAN_INLINE double CosineOfTurn(double v) {
  const double x = (std::fabs(v - 0.5) - 0.25) * (2.0 * std::numbers::pi);
  const double z = x * x;
  double series = 1.0 / 51090942171709440000.0;  // 1 / 21!
  series = series * z - 1.0 / 121645100408832000.0;
  series = series * z + 1.0 / 355687428096000.0;
  series = series * z - 1.0 / 1307674368000.0;
  series = series * z + 1.0 / 6227020800.0;
  series = series * z - 1.0 / 39916800.0;
  series = series * z + 1.0 / 362880.0;
  series = series * z - 1.0 / 5040.0;
  series = series * z + 1.0 / 120.0;
  series = series * z - 1.0 / 6.0;
  return x + x * (z * series);
}

CAPSTAN_INLINE double Normal(uint64_t a, uint64_t b) {
  const double u = (ToDouble(a) + 1.0) * 0x1p-32;  // (0, 1]
  const double v = ToDouble(b) * 0x1p-32;          // [0, 1)
  return std::sqrt(-2.0 * LogOf(u)) * CosineOfTurn(v);
}

constexpr size_t kLanes = 32;

// Holds the words of kLanes Philox blocks side by side, and the normal numbers made of them.
struct Lanes {
  std::array<uint64_t, kLanes> low, high;
  std::array<std::array<uint64_t, kLanes>, 4> words;
  std::array<std::array<float, kLanes>, 2> numbers;
};

CAPSTAN_INLINE void Loop(uint64_t stream, double scale, size_t count, Lanes* lanes) {
  for (size_t i = 0; i < count; ++i) {
    const std::array<uint32_t, 4> words = Philox4x32(stream, lanes->low[i], lanes->high[i]);
    for (size_t w = 0; w < words.size(); ++w) lanes->words[w][i] = words[w];
  }
  for (size_t half = 0; half < 2; ++half) {
    for (size_t i = 0; i < count; ++i) {
      const double number = Normal(lanes->words[2 * half][i], lanes->words[2 * half + 1][i]);
      lanes->numbers[half][i] = static_cast<float>(number * scale);
    }
  }
}

void LoopBaseline(uint64_t stream, double scale, size_t count, Lanes* lanes) {
  Loop(stream, scale, count, lanes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void LoopAvx2(uint64_t stream, double scale, size_t count,
                                              Lanes* lanes) {
  Loop(stream, scale, count, lanes);
}

__attribute__((target("avx512f" CAPSTAN_VECTORS_OF_512_BITS))) void LoopAvx512(uint64_t stream,
                                                                               double scale,
                                                                               size_t count,
                                                                               Lanes* lanes) {
  Loop(stream, scale, count, lanes);
}
#endif

void RunForm(InstructionSet set, uint64_t stream, double scale, size_t count, Lanes* lanes) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return LoopAvx512(stream, scale, count, lanes);
    case InstructionSet::kAvx2:
      return LoopAvx2(stream, scale, count, lanes);
#endif
    default:
      return LoopBaseline(stream, scale, count, lanes);
  }
}

}  // namespace

double NormalOf(uint32_t a, uint32_t b) { return Normal(a, b); }

void FillNormals(InstructionSet set, uint64_t stream, double scale, absl::Span<NormalPair> pairs) {
  Lanes lanes;
  for (; !pairs.empty(); pairs.remove_prefix(std::min(kLanes, pairs.size()))) {
    const size_t count = std::min(kLanes, pairs.size());
    for (size_t i = 0; i < count; ++i) {
      lanes.low[i] = pairs[i].counter_low;
      lanes.high[i] = pairs[i].counter_high;
    }
    RunForm(set, stream, scale, count, &lanes);
    for (size_t i = 0; i < count; ++i) {
      pairs[i].first = lanes.numbers[0][i];
      pairs[i].second = lanes.numbers[1][i];
    }
  }
}

}  // namespace capstan
