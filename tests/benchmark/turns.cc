#include "tests/benchmark/turns.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/processor_time.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kWarmUpOperations = 3;
// A trial this long says well enough how many operations make a turn.
constexpr double kTrialShare = 0.1;
constexpr int64_t kOperationsMax = 1 << 20;

absl::StatusOr<Turn> RunNamed(const Contestant& contestant, int64_t count) {
  absl::StatusOr<Turn> turn = contestant.run(count);
  if (!turn.ok()) return Annotate(turn.status(), contestant.name);
  return turn;
}

absl::StatusOr<int64_t> OperationsIn(double seconds, const Contestant& contestant) {
  CAPSTAN_RETURN_IF_ERROR(RunNamed(contestant, kWarmUpOperations).status());
  for (int64_t count = 1;; count *= 4) {
    CAPSTAN_ASSIGN_OR_RETURN(const Turn trial, RunNamed(contestant, count));
    if (trial.seconds < seconds * kTrialShare && count < kOperationsMax) continue;
    const double fitting = std::round(static_cast<double>(count) * seconds / trial.seconds);
    return std::clamp<int64_t>(static_cast<int64_t>(fitting), 1, kOperationsMax);
  }
}

}  // namespace

absl::Status TakeTurns(size_t contestants, int rounds,
                       const std::function<absl::Status(size_t)>& turn,
                       const std::function<absl::Status()>& after_round) {
  std::vector<size_t> order;
  for (size_t i = 0; i < contestants; ++i) order.push_back(i);
  uint64_t draws = 0;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[PhiloxWord(2, draws++) % i]);
    }
    for (const size_t who : order) CAPSTAN_RETURN_IF_ERROR(turn(who));
    if (after_round != nullptr) CAPSTAN_RETURN_IF_ERROR(after_round());
  }
  return absl::OkStatus();
}

void OperationTimer::Begin() {
  processor_begin_ = processor_();
  wall_begin_ = WallSeconds();
}

void OperationTimer::End(double bytes) {
  const double took = WallSeconds() - wall_begin_;
  turn_.bytes += bytes;
  turn_.seconds += took;
  turn_.processor += processor_() - processor_begin_;
  turn_.operations.push_back(took);
}

absl::StatusOr<std::vector<Series>> MeasureInTurn(const std::vector<Contestant>& contestants,
                                                  const TurnOptions& options) {
  std::vector<Series> all;
  std::vector<int64_t> counts;
  for (const Contestant& contestant : contestants) {
    CAPSTAN_ASSIGN_OR_RETURN(const int64_t count, OperationsIn(options.seconds, contestant));
    counts.push_back(count);
    all.push_back({.name = contestant.name});
  }
  const auto turn = [&](size_t who) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(const Turn done, RunNamed(contestants[who], counts[who]));
    Series& series = all[who];
    series.rates.push_back(done.bytes / done.seconds * 1e-9);
    series.processor.push_back(done.processor / done.bytes * 1e9);
    series.operations.insert(series.operations.end(), done.operations.begin(),
                             done.operations.end());
    return absl::OkStatus();
  };
  CAPSTAN_RETURN_IF_ERROR(TakeTurns(contestants.size(), options.rounds, turn));
  return all;
}

}  // namespace capstan::benchmark
