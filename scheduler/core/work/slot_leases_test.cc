#include "scheduler/core/work/slot_leases.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::scheduler::slot_leases_test {
namespace {

std::vector<Rank> Ranks(const std::vector<int>& values) {
  std::vector<Rank> ranks;
  for (const int value : values) ranks.push_back(Rank(value));
  return ranks;
}

std::vector<int> SlotsOf(const SlotLeases& leases, int rank) {
  std::vector<int> slots;
  for (const SlotLease& lease : leases.HeldBy(Rank(rank))) slots.push_back(lease.slot.value());
  return slots;
}

using Ints = std::vector<int>;

TEST_CASE("Slot leases: slots are spread evenly over the tasks, neighbours together",
          "[scheduler][core]") {
  SlotLeases leases(6, Iteration(0), Iteration(10));
  leases.Assign(Ranks({0, 1, 3}));
  CHECK(SlotsOf(leases, 0) == Ints{0, 1});
  CHECK(SlotsOf(leases, 1) == Ints{2, 3});
  CHECK(SlotsOf(leases, 2).empty());
  CHECK(SlotsOf(leases, 3) == Ints{4, 5});
  CHECK(leases.HeldBy(Rank(0))[0] == SlotLease{SlotId(0), Iteration(0), Iteration(10)});
}

TEST_CASE("Slot leases: with more tasks than slots some tasks have none", "[scheduler][core]") {
  SlotLeases leases(2, Iteration(0), Iteration(10));
  leases.Assign(Ranks({0, 1, 2}));
  CHECK(SlotsOf(leases, 0) == Ints{0});
  CHECK(SlotsOf(leases, 1) == Ints{1});
  CHECK(SlotsOf(leases, 2).empty());
}

TEST_CASE(
    "Slot leases: a dead worker's slots go to the survivors, who start where it was known to be",
    "[scheduler][core]") {
  SlotLeases leases(4, Iteration(20), Iteration(30));
  leases.Assign(Ranks({0, 1}));
  REQUIRE_OK(leases.Report(SlotId(0), Iteration(26)));
  REQUIRE_OK(leases.Report(SlotId(3), Iteration(25)));
  leases.Assign(Ranks({0}));
  const std::vector<SlotLease> held = leases.HeldBy(Rank(0));
  REQUIRE(held.size() == 4);
  CHECK(held[0].begin == Iteration(20));  // The task's own lease is unchanged.
  CHECK(held[2].begin == Iteration(20));
  CHECK(held[3].begin == Iteration(25));
}

TEST_CASE("Slot leases: a joining task takes a share, and complete slots do not move",
          "[scheduler][core]") {
  SlotLeases leases(4, Iteration(0), Iteration(10));
  leases.Assign(Ranks({0}));
  REQUIRE_OK(leases.Report(SlotId(1), Iteration(10)));
  REQUIRE_OK(leases.Report(SlotId(2), Iteration(4)));
  leases.Assign(Ranks({0, 1}));
  CHECK(SlotsOf(leases, 0) == Ints{0, 2});
  CHECK(SlotsOf(leases, 1) == Ints{3});
  CHECK(leases.finished() == Iteration(0));
}

TEST_CASE("Slot leases: complete once every slot has reached the end; nobody alive changes nothing",
          "[scheduler][core]") {
  SlotLeases leases(2, Iteration(0), Iteration(3));
  leases.Assign({});
  CHECK(SlotsOf(leases, 0).empty());
  REQUIRE_OK(leases.Report(SlotId(0), Iteration(3)));
  CHECK_FALSE(leases.complete());
  REQUIRE_OK(leases.Report(SlotId(1), Iteration(2)));
  CHECK(leases.finished() == Iteration(2));
  REQUIRE_OK(leases.Report(SlotId(1), Iteration(3)));
  CHECK(leases.complete());
  CHECK(SlotLeases(3, Iteration(5), Iteration(5)).complete());
}

TEST_CASE("Slot leases: with backups the slowest slots hold nobody up", "[scheduler][core]") {
  SlotLeases leases(4, Iteration(0), Iteration(10), Iteration(0), /*backups=*/1);
  leases.Assign(Ranks({0, 1}));
  for (const int slot : {0, 1, 3}) REQUIRE_OK(leases.Report(SlotId(slot), Iteration(7)));
  CHECK(leases.finished() == Iteration(7));
  REQUIRE_OK(leases.Report(SlotId(0), Iteration(10)));
  REQUIRE_OK(leases.Report(SlotId(1), Iteration(10)));
  CHECK(leases.finished() == Iteration(7));
  CHECK_FALSE(leases.complete());
  REQUIRE_OK(leases.Report(SlotId(3), Iteration(10)));
  CHECK(leases.finished() == Iteration(10));
  CHECK(leases.complete());
  CHECK_FALSE(leases.AtSegmentEnd());
  // The slowest one may still tell how far it has come.
  REQUIRE_OK(leases.Report(SlotId(2), Iteration(3)));
  CHECK(leases.complete());
}

TEST_CASE("Slot leases: an older report changes nothing", "[scheduler][core]") {
  SlotLeases leases(1, Iteration(5), Iteration(10));
  REQUIRE_OK(leases.Report(SlotId(0), Iteration(8)));
  REQUIRE_OK(leases.Report(SlotId(0), Iteration(6)));
  REQUIRE_OK(leases.Report(SlotId(0), Iteration(1)));
  CHECK(leases.finished() == Iteration(8));
}

TEST_CASE("Slot leases: a report outside the phase is refused and names the limit",
          "[scheduler][core]") {
  SlotLeases leases(2, Iteration(0), Iteration(10));
  CHECK_STATUS(leases.Report(SlotId(2), Iteration(1)), absl::StatusCode::kInvalidArgument,
               "slot 2 is outside [0, 2)");
  CHECK_STATUS(leases.Report(SlotId(-1), Iteration(1)), absl::StatusCode::kInvalidArgument,
               "slot -1 is outside [0, 2)");
  CHECK_STATUS(leases.Report(SlotId(1), Iteration(11)), absl::StatusCode::kInvalidArgument,
               "iteration_done 11 is above the end of the lease, 10");
}

}  // namespace
}  // namespace capstan::scheduler::slot_leases_test
