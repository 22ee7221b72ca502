// Turns: contestants measured one after the other, round by round, so that a busy machine slows
// all alike; a ratio is then of two turns of one round.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_TURNS_H_
#define CAPSTAN_TESTS_BENCHMARK_TURNS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace capstan::benchmark {

// Calls turn(i) once a round for each i in [0, contestants), each round in another order: who goes
// after whom must not matter. Stops at the first error.
absl::Status TakeTurns(size_t contestants, int rounds,
                       const std::function<absl::Status(size_t)>& turn,
                       const std::function<absl::Status()>& after_round = nullptr);

// Results of one turn.
struct Turn {
  double bytes = 0;                // Moved, in both directions together.
  double seconds = 0;              // Wall time.
  double processor = 0;            // Seconds of all processes that took part.
  std::vector<double> operations;  // Wall time of each; empty: not told apart.
};

// Times operations: Begin and End around each, or around many that are not told apart. What happens
// between End and Begin is not counted.
class OperationTimer {
 public:
  // `processor`: seconds so far, of all processes that take part.
  explicit OperationTimer(std::function<double()> processor) : processor_(std::move(processor)) {}
  void Begin();
  void End(double bytes);
  Turn Take() { return std::move(turn_); }

 private:
  const std::function<double()> processor_;
  Turn turn_;
  double wall_begin_ = 0, processor_begin_ = 0;
};

struct Contestant {
  std::string name;
  // Does so many operations.
  std::function<absl::StatusOr<Turn>(int64_t count)> run;
};

// Results of one contestant: a number for each round.
struct Series {
  std::string name;
  std::vector<double> rates;       // GB/s (10^9 bytes).
  std::vector<double> processor;   // Processor seconds for each GB.
  std::vector<double> operations;  // Seconds of each operation of all rounds.
};

struct TurnOptions {
  int rounds = 5;        // >= 5.
  double seconds = 0.5;  // Approximate duration of one turn.
};

// Warms each contestant up, finds how many of its operations make a turn, and lets them take turns.
// Errors: the first one of a contestant, its name in front.
absl::StatusOr<std::vector<Series>> MeasureInTurn(const std::vector<Contestant>& contestants,
                                                  const TurnOptions& options);

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_TURNS_H_
