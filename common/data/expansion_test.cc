#include "common/data/expansion.h"

#include <catch2/catch.hpp>

namespace capstan::expansion_test {
namespace {

TEST_CASE("Expansion: the bound follows the compressed bytes between two ends", "[common][data]") {
  constexpr int64_t kMax = int64_t{8} << 30;
  CHECK(DecompressedBytesMax(0, kMax) == 64 << 20);
  CHECK(DecompressedBytesMax(1 << 18, kMax) == 64 << 20);
  CHECK(DecompressedBytesMax(1'000'000, kMax) == 250'000'000);
  CHECK(DecompressedBytesMax(kMax / 250, kMax) == kMax / 250 * 250);
  CHECK(DecompressedBytesMax(kMax / 250 + 1, kMax) == kMax);
  CHECK(DecompressedBytesMax(INT64_MAX, kMax) == kMax);
  CHECK(DecompressedBytesMax(10, 1000) == 1000);
  CHECK(DecompressedBytesMax(10, 0) == 0);
}

}  // namespace
}  // namespace capstan::expansion_test
