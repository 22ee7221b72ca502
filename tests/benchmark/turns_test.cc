#include "tests/benchmark/turns.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::benchmark::turns_test {
namespace {

TEST_CASE("Turns: each round has every contestant once, in changing order", "[benchmark]") {
  std::vector<std::vector<size_t>> rounds(1);
  REQUIRE_OK(TakeTurns(
      3, 20,
      [&](size_t who) {
        rounds.back().push_back(who);
        return absl::OkStatus();
      },
      [&] {
        rounds.emplace_back();
        return absl::OkStatus();
      }));
  CHECK(rounds.back().empty());
  rounds.pop_back();
  CHECK(rounds.size() == 20);
  const std::set<std::vector<size_t>> orders(rounds.begin(), rounds.end());
  CHECK(orders.size() == 6);
  for (std::vector<size_t> round : rounds) {
    std::sort(round.begin(), round.end());
    CHECK(round == std::vector<size_t>{0, 1, 2});
  }
}

// Moves 2 GB in a second of wall time and six of processor time, an operation.
Contestant Steady(const std::string& name, std::vector<int64_t>* counts) {
  return {.name = name, .run = [counts](int64_t count) -> absl::StatusOr<Turn> {
            counts->push_back(count);
            const auto n = static_cast<double>(count);
            return Turn{.bytes = 2e9 * n,
                        .seconds = n,
                        .processor = 6 * n,
                        .operations = std::vector<double>(static_cast<size_t>(count), 1.0)};
          }};
}

TEST_CASE("Turns: a series has the rate of each round and every operation", "[benchmark]") {
  std::vector<int64_t> counts;
  const auto series = MeasureInTurn({Steady("a", &counts)}, {.rounds = 5, .seconds = 7});
  REQUIRE_OK(series.status());
  CHECK((*series)[0].name == "a");
  CHECK((*series)[0].rates == std::vector<double>(5, 2.0));
  CHECK((*series)[0].processor == std::vector<double>(5, 3.0));
  CHECK((*series)[0].operations.size() == 35);  // 7 seconds are 7 operations.
  CHECK(counts.back() == 7);
}

TEST_CASE("Turns: an error names its contestant", "[benchmark]") {
  std::vector<int64_t> counts;
  const Contestant bad{.name = "b", .run = [](int64_t) -> absl::StatusOr<Turn> {
                         return absl::UnavailableError("gone");
                       }};
  const auto series = MeasureInTurn({Steady("a", &counts), bad}, {.rounds = 5, .seconds = 1});
  CHECK(series.status() == absl::UnavailableError("b: gone"));
}

}  // namespace
}  // namespace capstan::benchmark::turns_test
