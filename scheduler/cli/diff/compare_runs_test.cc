#include "scheduler/cli/diff/compare_runs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "common/testing/status_matchers.h"

namespace capstan::cli::compare_runs_test {
namespace {

using What = RunDifference::What;
using Between = RunDifference::Between;
using Before = RunDifference::Before;

// A run of `iterations` with two micro-batches each. Table 0 has numbers, table 1 rows.
LoggedUpdates Run(int64_t iterations = 4, int32_t slots = 2) {
  LoggedUpdates run{.table_names = {"parameters", "ads"}, .updates = {}};
  for (int64_t t = 0; t < iterations; ++t) {
    for (int32_t slot = 0; slot < slots; ++slot) {
      const int64_t begin = 16 * (t * slots + slot);
      const auto seed = static_cast<uint64_t>(begin);
      run.updates.push_back({.iteration = t,
                             .epoch = 1,
                             .slot = slot,
                             .positions = {.begin = begin, .end = begin + 16},
                             .table = 0,
                             .parameters = 1000 + static_cast<uint64_t>(t),
                             .gradient = 2000 + seed,
                             .keys = 0,
                             .rank = slot});
      run.updates.push_back(run.updates.back());
      run.updates.back().table = 1;
      run.updates.back().parameters = 3000 + seed;
      run.updates.back().keys = 4000 + seed;
    }
  }
  return run;
}

TableUpdate& At(LoggedUpdates& run, int64_t iteration, int32_t slot, int32_t table = 0) {
  const auto found = std::find_if(run.updates.begin(), run.updates.end(), [&](const auto& update) {
    return update.iteration == iteration && update.slot == slot && update.table == table;
  });
  REQUIRE(found != run.updates.end());
  return *found;
}

void Remove(LoggedUpdates& run, int64_t iteration, int32_t slot) {
  const auto gone = std::remove_if(run.updates.begin(), run.updates.end(), [&](const auto& update) {
    return update.iteration == iteration && update.slot == slot;
  });
  run.updates.erase(gone, run.updates.end());
}

RunComparison Compared(LoggedUpdates first, LoggedUpdates second) {
  REQUIRE_OK_AND_ASSIGN(RunComparison comparison, CompareRuns(std::move(first), std::move(second)));
  return comparison;
}

RunDifference DifferenceOf(LoggedUpdates first, LoggedUpdates second) {
  const RunComparison comparison = Compared(std::move(first), std::move(second));
  REQUIRE(comparison.difference.has_value());
  return *comparison.difference;
}

TEST_CASE("Compare runs: order, workers and repetitions make no difference", "[cli]") {
  LoggedUpdates other = Run();
  std::reverse(other.updates.begin(), other.updates.end());
  other.table_names = {"ads", "parameters"};
  for (TableUpdate& update : other.updates) {
    update.rank = 7;
    update.table = 1 - update.table;
  }
  other.updates.push_back(other.updates[3]);
  const RunComparison comparison = Compared(Run(), other);
  CHECK_FALSE(comparison.difference.has_value());
  CHECK(comparison.equal_iterations == 4);
  CHECK(comparison.equal_micro_batches == 8);
  CHECK(comparison.unrecorded_first + comparison.unrecorded_second == 0);
  CHECK(comparison.second.micro_batches == 8);
}

TEST_CASE("Compare runs: the first gradient that differs is named", "[cli]") {
  LoggedUpdates other = Run();
  At(other, 2, 1).gradient = 5;
  At(other, 3, 0).parameters = 6;
  const RunComparison comparison = Compared(Run(), other);
  REQUIRE(comparison.difference.has_value());
  const RunDifference& difference = *comparison.difference;
  CHECK(difference.what == What::kGradient);
  CHECK(difference.between == Between::kRuns);
  CHECK(difference.table == "parameters");
  CHECK(difference.first.iteration == 2);
  CHECK(difference.first.slot == 1);
  CHECK(difference.second.gradient == 5);
  CHECK(comparison.equal_iterations == 2);
}

TEST_CASE("Compare runs: parameters that differ are told with what is known of before", "[cli]") {
  const auto other_from = [](int64_t iteration) {
    LoggedUpdates run = Run();
    for (TableUpdate& update : run.updates) {
      if (update.iteration >= iteration && update.table == 0) update.parameters += 100;
    }
    return run;
  };
  const RunDifference at_begin = DifferenceOf(Run(), other_from(0));
  CHECK(at_begin.what == What::kParameters);
  CHECK(at_begin.before == Before::kNothing);
  const RunDifference later = DifferenceOf(Run(), other_from(2));
  CHECK(later.what == What::kParameters);
  CHECK(later.first.iteration == 2);
  CHECK(later.before == Before::kEqual);
  LoggedUpdates lacking = Run();
  Remove(lacking, 1, 1);
  CHECK(DifferenceOf(lacking, other_from(2)).before == Before::kUnrecorded);
  CHECK(DifferenceOf(other_from(2), lacking).before == Before::kUnrecorded);
  Remove(lacking, 1, 0);  // The whole iteration.
  CHECK(DifferenceOf(lacking, other_from(2)).before == Before::kUnrecorded);
}

TEST_CASE("Compare runs: rows may have been changed by any unrecorded micro-batch before",
          "[cli]") {
  LoggedUpdates other = Run();
  At(other, 3, 0, 1).parameters = 5;
  CHECK(DifferenceOf(Run(), other).before == Before::kEqual);
  Remove(other, 0, 1);
  const RunDifference difference = DifferenceOf(Run(), other);
  CHECK(difference.table == "ads");
  CHECK(difference.what == What::kParameters);
  CHECK(difference.before == Before::kUnrecorded);
}

TEST_CASE("Compare runs: other samples and other keys are told before other gradients", "[cli]") {
  LoggedUpdates other = Run();
  At(other, 1, 0, 1) = {.iteration = 1,
                        .epoch = 1,
                        .slot = 0,
                        .positions = {.begin = 32, .end = 48},
                        .table = 1,
                        .parameters = 1,
                        .gradient = 2,
                        .keys = 3,
                        .rank = 0};
  const RunDifference keys = DifferenceOf(Run(), other);
  CHECK(keys.what == What::kKeys);
  CHECK(keys.table == "ads");
  At(other, 1, 0, 1).positions.end = 40;
  CHECK(DifferenceOf(Run(), other).what == What::kSamples);
}

TEST_CASE("Compare runs: another number of micro-batches an iteration is a difference", "[cli]") {
  LoggedUpdates other = Run(4, 3);
  const RunDifference difference = DifferenceOf(Run(), other);
  CHECK(difference.what == What::kSlots);
  CHECK(difference.first.iteration == 0);
  CHECK(difference.slots_first == 2);
  CHECK(difference.slots_second == 3);
}

TEST_CASE("Compare runs: a run that contradicts itself is named", "[cli]") {
  LoggedUpdates twice = Run();
  twice.updates.push_back(At(twice, 2, 1));
  twice.updates.back().gradient = 5;
  CHECK(DifferenceOf(twice, Run()).between == Between::kFirstAlone);
  const RunDifference gradient = DifferenceOf(Run(), twice);
  CHECK(gradient.between == Between::kSecondAlone);
  CHECK(gradient.what == What::kGradient);
  CHECK(gradient.first.slot == 1);
  CHECK(gradient.second.gradient == 5);
  LoggedUpdates torn = Run();
  At(torn, 2, 1).parameters = 5;
  const RunDifference parameters = DifferenceOf(Run(), torn);
  CHECK(parameters.between == Between::kSecondAlone);
  CHECK(parameters.what == What::kParameters);
}

TEST_CASE("Compare runs: what a run has not recorded is passed over and counted", "[cli]") {
  LoggedUpdates other = Run();
  Remove(other, 1, 1);
  Remove(other, 2, 0);
  Remove(other, 2, 1);
  const RunComparison comparison = Compared(Run(), other);
  CHECK_FALSE(comparison.difference.has_value());
  CHECK(comparison.equal_iterations == 3);
  CHECK(comparison.equal_micro_batches == 5);
  CHECK(comparison.unrecorded_first == 0);
  CHECK(comparison.unrecorded_second == 3);
  CHECK(Compared(other, Run()).unrecorded_first == 3);
}

TEST_CASE("Compare runs: only iterations that both reach are compared", "[cli]") {
  LoggedUpdates resumed = Run(6);
  for (int64_t t = 0; t < 2; ++t) {
    for (int32_t slot = 0; slot < 2; ++slot) Remove(resumed, t, slot);
  }
  const RunComparison comparison = Compared(Run(4), resumed);
  CHECK_FALSE(comparison.difference.has_value());
  CHECK(comparison.equal_iterations == 2);
  CHECK(comparison.unrecorded_first + comparison.unrecorded_second == 0);
  CHECK(comparison.second.first_iteration == 2);
  CHECK(comparison.second.last_iteration == 5);
}

TEST_CASE("Compare runs: an empty micro-batch of rows contradicts none", "[cli]") {
  LoggedUpdates run = Run();
  TableUpdate& empty = At(run, 3, 1, 1);
  empty.keys = 0;
  empty.parameters = 0;
  CHECK_FALSE(Compared(run, run).difference.has_value());
}

TEST_CASE("Compare runs: runs that cannot be compared are errors", "[cli]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(CompareRuns(LoggedUpdates(), Run()), code, "the first run has no update");
  LoggedUpdates other = Run();
  other.table_names[1] = "users";
  CHECK_STATUS(CompareRuns(Run(), other), code, "the tables ads, parameters and parameters, users");
  LoggedUpdates later = Run(2);
  for (TableUpdate& update : later.updates) update.iteration += 7;
  CHECK_STATUS(CompareRuns(Run(2), later), code,
               "no iteration in common: the first has 0 to 1, the second 7 to 8");
}

}  // namespace
}  // namespace capstan::cli::compare_runs_test
