// Statistics: what the benchmarks say about numbers measured several times.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_TESTS_BENCHMARK_STATISTICS_H_
#define CAPSTAN_TESTS_BENCHMARK_STATISTICS_H_

#include <utility>
#include <vector>

namespace capstan::benchmark {

// REQUIRES: at least one value.
double Median(std::vector<double> values);

// Between these the true median lies in 19 of 20 cases: of n sorted values those at
// n/2 -+ 0.98 sqrt(n), as so many of n fair coins show heads. REQUIRES: at least 5 values.
std::pair<double, double> MedianRange(std::vector<double> values);

// The least value that at least `share` of all values do not exceed: 0.99 of 100 values is the
// 99th. 0 if there are none. REQUIRES: 0 < share <= 1.
double Percentile(std::vector<double> values, double share);

// ours[i] / theirs[i]. REQUIRES: as many of the one as of the other.
std::vector<double> Ratios(const std::vector<double>& ours, const std::vector<double>& theirs);

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_STATISTICS_H_
