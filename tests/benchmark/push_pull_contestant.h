// PushPullContestant: whoever pushes and pulls in iterations, as a contestant of MeasureInTurn.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_PUSH_PULL_CONTESTANT_H_
#define CAPSTAN_TESTS_BENCHMARK_PUSH_PULL_CONTESTANT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {

// An operation is one iteration, which moves `bytes`. `fleet`, which is borrowed, has
// Run(iterations) and Processor(), as Contender has.
template <typename Fleet>
Contestant PushPullContestant(const std::string& name, Fleet& fleet, double bytes) {
  return {.name = name, .run = [&fleet, bytes](int64_t count) -> absl::StatusOr<Turn> {
            OperationTimer timer([&fleet] { return fleet.Processor(); });
            for (int64_t i = 0; i < count; ++i) {
              timer.Begin();
              CAPSTAN_RETURN_IF_ERROR(fleet.Run(1));
              timer.End(bytes);
            }
            return timer.Take();
          }};
}

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_PUSH_PULL_CONTESTANT_H_
