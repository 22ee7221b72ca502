// RunAtOnce: the same work for several workers, each on a thread of its own.
//
// Thread safety: pure.
#ifndef CAPSTAN_TESTS_BENCHMARK_AT_ONCE_H_
#define CAPSTAN_TESTS_BENCHMARK_AT_ONCE_H_

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/status/status_macros.h"

namespace capstan::benchmark {

// Runs `run(0)` to `run(count - 1)`, the first on the caller's thread; the first error of any.
inline absl::Status RunAtOnce(size_t count, const std::function<absl::Status(size_t)>& run) {
  std::vector<absl::Status> ends(count);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i) {
    threads.emplace_back([&, i] { ends[i] = run(i); });
  }
  ends[0] = run(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) CAPSTAN_RETURN_IF_ERROR(end);
  return absl::OkStatus();
}

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_AT_ONCE_H_
