#include "tests/benchmark/statistics.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace capstan::benchmark::statistics_test {
namespace {

TEST_CASE("Statistics: the median is the middle, or halfway between two", "[benchmark]") {
  CHECK(Median({7}) == 7);
  CHECK(Median({9, 1, 4}) == 4);
  CHECK(Median({9, 1, 4, 6}) == 5);
}

TEST_CASE("Statistics: the median's range leaves out few of many values", "[benchmark]") {
  CHECK(MedianRange({5, 4, 3, 2, 1}) == std::pair(1.0, 5.0));
  std::vector<double> hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(i);
  CHECK(MedianRange(hundred) == std::pair(41.0, 60.0));  // 50 -+ 9.8
}

TEST_CASE("Statistics: a percentile is one of the values", "[benchmark]") {
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  CHECK(Percentile(hundred, 0.5) == 50);
  CHECK(Percentile(hundred, 0.99) == 99);
  CHECK(Percentile(hundred, 1) == 100);
  CHECK(Percentile({3, 8}, 0.99) == 8);
  CHECK(Percentile({3}, 0.01) == 3);
  CHECK(Percentile({}, 0.5) == 0);
}

TEST_CASE("Statistics: ratios are of the same round", "[benchmark]") {
  CHECK(Ratios({6, 6}, {3, 2}) == std::vector<double>{2, 3});
}

}  // namespace
}  // namespace capstan::benchmark::statistics_test
