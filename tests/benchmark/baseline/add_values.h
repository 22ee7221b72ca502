// AddValues: what the servers of the baselines do with a gradient.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_ADD_VALUES_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_ADD_VALUES_H_

#include <cstddef>
#include <vector>

namespace capstan::benchmark {

// Adds `count` values to the sums; makes them first if there are another number. Whoever includes
// this is compiled with -O3, so that it is as fast as it can be.
inline void AddValues(const float* values, size_t count, std::vector<float>& sums) {
  if (sums.size() != count) sums.assign(count, 0.0f);
  float* const to = sums.data();
  for (size_t i = 0; i < count; ++i) to[i] += values[i];
}

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_ADD_VALUES_H_
