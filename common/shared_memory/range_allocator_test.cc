#include "common/shared_memory/range_allocator.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <random>

namespace capstan::range_allocator_test {
namespace {

TEST_CASE("Range allocator: ranges are taken from the front, aligned, and given back",
          "[range_allocator]") {
  RangeAllocator ranges(1000);
  CHECK(ranges.Take(100) == 0);
  CHECK(ranges.Take(1) == 128);
  CHECK(ranges.Take(64) == 192);
  CHECK_FALSE(ranges.Take(1000 - 256 + 1).has_value());
  CHECK(ranges.Fits(1000 - 256));
  ranges.Give(128);
  CHECK_FALSE(ranges.Fits(1000 - 256 + 1));
  CHECK(ranges.Take(65) == 256);  // The gap at 128 is smaller.
  CHECK(ranges.Take(64) == 128);
}

TEST_CASE("Range allocator: the whole is one range when nothing is taken", "[range_allocator]") {
  RangeAllocator ranges(1000);
  CHECK_FALSE(ranges.Fits(1001));
  CHECK(ranges.Take(1000) == 0);
  CHECK_FALSE(ranges.Fits(1));
  ranges.Give(0);
  CHECK(ranges.Take(1000) == 0);
  CHECK_FALSE(RangeAllocator(0).Fits(1));
}

TEST_CASE("Range allocator: taken ranges never overlap, whatever comes and goes",
          "[range_allocator]") {
  std::mt19937 draw(7);
  RangeAllocator ranges(1 << 16);
  std::map<int64_t, int64_t> taken;  // Begin to end.
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (draw() % 2 == 0 && !taken.empty()) {
      const auto victim = std::next(taken.begin(), draw() % taken.size());
      ranges.Give(victim->first);
      taken.erase(victim);
      continue;
    }
    const auto bytes = static_cast<int64_t>(1 + draw() % 9000);
    const bool fits = ranges.Fits(bytes);
    const auto begin = ranges.Take(bytes);
    REQUIRE(begin.has_value() == fits);
    if (!begin.has_value()) {
      ++refused;
      continue;
    }
    REQUIRE(*begin % RangeAllocator::kAlignment == 0);
    REQUIRE(*begin + bytes <= ranges.size());
    const auto after = taken.lower_bound(*begin);
    if (after != taken.end()) REQUIRE(*begin + bytes <= after->first);
    if (after != taken.begin()) REQUIRE(std::prev(after)->second <= *begin);
    taken[*begin] = *begin + bytes;
  }
  CHECK(refused > 100);
}

}  // namespace
}  // namespace capstan::range_allocator_test
