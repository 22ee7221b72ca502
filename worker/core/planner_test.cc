#include <catch2/catch.hpp>
#include <vector>

#include "worker/core/sample_planner.h"
#include "worker/core/slot_planner.h"

namespace capstan::worker::planner_test {
namespace {

SlotLease Slots(int slot, int64_t begin, int64_t end) {
  return {SlotId(slot), Iteration(begin), Iteration(end)};
}
SlotWork Work(int64_t iteration, int slot) { return {Iteration(iteration), SlotId(slot)}; }

void Compute(SlotPlanner& planner, const SlotWork& work) {
  REQUIRE(planner.Next() == work);
  planner.Started(work);
  planner.Done(work);
}

TEST_CASE("SlotPlanner: slots of one iteration come before the next iteration", "[worker][core]") {
  SlotPlanner planner;
  planner.Assign({Slots(1, 0, 2), Slots(3, 0, 2)});
  CHECK(planner.Upcoming(9) ==
        std::vector<SlotWork>{Work(0, 1), Work(0, 3), Work(1, 1), Work(1, 3)});
  for (const SlotWork& work : planner.Upcoming(9)) Compute(planner, work);
  CHECK(planner.Finished());
  CHECK_FALSE(planner.Next().has_value());
}

TEST_CASE("SlotPlanner: a slot taken over from a dead worker is caught up first",
          "[worker][core]") {
  SlotPlanner planner;
  planner.Assign({Slots(0, 0, 10)});
  for (int c = 0; c < 5; ++c) Compute(planner, Work(c, 0));
  planner.Assign({Slots(0, 0, 10), Slots(1, 3, 10)});
  Compute(planner, Work(3, 1));
  Compute(planner, Work(4, 1));
  CHECK(planner.Next() == Work(5, 0));
  CHECK(planner.Progress()[0].done == Iteration(5));
}

TEST_CASE("SlotPlanner: iterations that the servers have passed are skipped", "[worker][core]") {
  SlotPlanner planner;
  planner.Assign({Slots(1, 3, 10)});
  planner.SkipTo(Iteration(6));
  CHECK(planner.Next() == Work(6, 1));
  CHECK(planner.Progress()[0].done == Iteration(6));
  planner.SkipTo(Iteration(12));
  CHECK(planner.Finished());
}

TEST_CASE("SlotPlanner: a lease that ends early lets begun work end, and what was beyond is told",
          "[worker][core]") {
  SlotPlanner planner;
  planner.Assign({Slots(0, 0, 10)});
  Compute(planner, {Iteration(0), SlotId(0)});
  planner.Started({Iteration(1), SlotId(0)});
  planner.Assign({Slots(0, 0, 1)});
  CHECK(planner.Next() == std::nullopt);
  CHECK_FALSE(planner.Finished());
  CHECK(planner.Progress()[0].done == Iteration(1));
  planner.Done({Iteration(1), SlotId(0)});
  CHECK(planner.Finished());
  CHECK(planner.Progress()[0].done == Iteration(2));
  planner.SkipTo(Iteration(4));
  CHECK(planner.Progress()[0].done == Iteration(4));
  planner.Assign({Slots(0, 0, 6)});
  CHECK(planner.Next() == SlotWork{Iteration(4), SlotId(0)});
}

TEST_CASE("SlotPlanner: a lease may be extended, and goes on in a later one with what is begun",
          "[worker][core]") {
  SlotPlanner planner;
  planner.Assign({Slots(0, 0, 3)});
  for (int c = 0; c < 2; ++c) Compute(planner, Work(c, 0));
  planner.Started(Work(2, 0));
  SECTION("extended before the last push is acknowledged") {
    planner.Assign({Slots(0, 0, 6)});
    CHECK(planner.Next() == Work(3, 0));
    CHECK(planner.Progress()[0].done == Iteration(2));
    planner.Done(Work(2, 0));
  }
  SECTION("followed by the next segment") {
    planner.Done(Work(2, 0));
    CHECK(planner.Finished());
    planner.Assign({Slots(0, 3, 6)});
  }
  CHECK(planner.Next() == Work(3, 0));
  CHECK(planner.Progress()[0].done == Iteration(3));
}

TEST_CASE("SlotPlanner: started but not acknowledged work is not finished", "[worker][core]") {
  SlotPlanner planner;
  planner.Assign({Slots(0, 0, 1)});
  planner.Started(Work(0, 0));
  CHECK_FALSE(planner.Next().has_value());
  CHECK_FALSE(planner.Finished());
  planner.Done(Work(0, 0));
  CHECK(planner.Finished());
}

SampleLease Lease(uint64_t id, int64_t begin, int64_t end) { return {LeaseId(id), {begin, end}}; }

TEST_CASE("SamplePlanner: a lease is cut into batches, the last one shorter", "[worker][core]") {
  SamplePlanner planner(4);
  planner.Assign({Lease(1, 0, 10), Lease(2, 20, 21)});
  const std::vector<SampleWork> works = planner.Upcoming(9);
  CHECK(works == std::vector<SampleWork>{{LeaseId(1), {0, 4}},
                                         {LeaseId(1), {4, 8}},
                                         {LeaseId(1), {8, 10}},
                                         {LeaseId(2), {20, 21}}});
  for (const SampleWork& work : works) {
    REQUIRE(planner.Next() == work);
    planner.Started(work);
    planner.Done(work, {.loss_sum = 0.5, .correct = 1});
  }
  CHECK(planner.Finished());
  CHECK(planner.Progress()[0].loss_sum == 1.5);
  CHECK(planner.Progress()[0].correct == 3);
}

TEST_CASE("SamplePlanner: a repeated assignment keeps progress and drops ended leases",
          "[worker][core]") {
  SamplePlanner planner(4);
  planner.Assign({Lease(1, 0, 8)});
  planner.Started({LeaseId(1), {0, 4}});
  const WorkResult result{.loss_sum = 1.0, .correct = 2};
  planner.Done({LeaseId(1), {0, 4}}, result);
  planner.Done({LeaseId(1), {0, 4}}, result);  // A repeat changes nothing.
  planner.Assign({Lease(1, 0, 8), Lease(2, 8, 12)});
  CHECK(planner.Next() == SampleWork{LeaseId(1), {4, 8}});
  CHECK(planner.Progress()[0].position_done == 4);
  CHECK(planner.Progress()[0].correct == 2);
  CHECK(planner.UnfinishedLeases() == 2);
  planner.Assign({Lease(2, 8, 12)});
  CHECK(planner.Progress().size() == 1);
}

TEST_CASE("SamplePlanner: a lease's scores are those of its batches, told once it is done",
          "[worker][core]") {
  WorkResult low, high, both;
  low.scores.Add(-1.0f, false);
  high.scores.Add(2.0f, true);
  both.scores.Merge(low.scores);
  both.scores.Merge(high.scores);
  SamplePlanner planner(4);
  planner.Assign({Lease(1, 0, 8), Lease(2, 8, 12)});
  planner.Done({LeaseId(1), {0, 4}}, low);
  planner.Done({LeaseId(1), {0, 4}}, low);  // A repeat changes nothing.
  CHECK(planner.Progress()[0].scores.empty());
  planner.Assign({Lease(1, 0, 8), Lease(2, 8, 12)});
  planner.Done({LeaseId(1), {4, 8}}, high);
  CHECK(planner.Progress()[0].scores == both.scores);
  CHECK(planner.Progress()[1].scores.empty());
}

}  // namespace
}  // namespace capstan::worker::planner_test
