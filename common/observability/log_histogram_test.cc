#include "common/observability/log_histogram.h"

#include <catch2/catch.hpp>
#include <limits>
#include <thread>
#include <vector>

namespace capstan::log_histogram_test {
namespace {

using Counts = std::vector<int64_t>;

TEST_CASE("Log histogram: values fall into buckets of powers of two", "[log_histogram]") {
  LogHistogram histogram;
  CHECK(histogram.Counts().empty());
  for (const int64_t value : {0, 1, 2, 3, 4, 7, 8, -5}) histogram.Record(value);
  CHECK(histogram.Counts() == Counts{2, 1, 2, 2, 1});
  CHECK(histogram.sum() == 20);
  histogram.Record(std::numeric_limits<int64_t>::max() / 2);
  CHECK(histogram.Counts().size() == LogHistogram::kBuckets);
}

TEST_CASE("Log histogram: a percentile is the bound that enough values lie below",
          "[log_histogram]") {
  CHECK(PercentileBound(Counts{}, 0.5) == 0);
  const Counts counts = {0, 50, 0, 49, 1};  // Below 2, 8 and 16.
  CHECK(PercentileBound(counts, 0.5) == 2);
  CHECK(PercentileBound(counts, 0.51) == 8);
  CHECK(PercentileBound(counts, 0.99) == 8);
  CHECK(PercentileBound(counts, 1.0) == 16);
}

TEST_CASE("Log histogram: nothing that several threads record is lost", "[log_histogram]") {
  LogHistogram histogram;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 10'000; ++k) histogram.Record(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(histogram.Counts() == Counts{0, 0, 40'000});
  CHECK(histogram.sum() == 120'000);
}

}  // namespace
}  // namespace capstan::log_histogram_test
