#include "scheduler/core/plan/epoch_plan.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::epoch_plan_test {
namespace {

JobPlan Plan(ConsistencyMode mode, int64_t iterations_max) {
  JobPlan plan;
  plan.consistency.mode = mode;
  plan.epochs = 3;
  plan.batch_size = 10;
  plan.consistency.slots = 4;
  plan.train_count = 95;
  plan.iterations_max = iterations_max;
  return plan;
}

TEST_CASE("Epoch plan: BSP counts iterations of all slots", "[scheduler][core]") {
  const EpochPlan plan(Plan(ConsistencyMode::kBsp, 0));
  CHECK(plan.epochs() == 3);
  CHECK(plan.steps_total() == 9);
  CHECK(plan.Steps(Epoch(1)) == Range{3, 6});
  CHECK(plan.Samples(Epoch(1)) == 95);
  CHECK(plan.samples_total() == 285);
}

TEST_CASE("Epoch plan: with backups only whole iterations are trained", "[scheduler][core]") {
  JobPlan backed_up = Plan(ConsistencyMode::kBsp, 0);
  backed_up.consistency.backups = 1;
  const EpochPlan plan(backed_up);
  CHECK(plan.steps_total() == 6);
  CHECK(plan.Steps(Epoch(1)) == Range{2, 4});
  CHECK(plan.Samples(Epoch(1)) == 80);
  CHECK(plan.samples_total() == 240);
  CHECK(plan.SamplesBefore(Epoch(2)) == 160);
  CHECK(plan.SlotSamples(SlotId(3), 2) == 20);
}

TEST_CASE("Epoch plan: SSP and ASP count batches", "[scheduler][core]") {
  const EpochPlan plan(Plan(ConsistencyMode::kSsp, 0));
  CHECK(plan.Steps(Epoch(2)) == Range{20, 30});
  CHECK(plan.samples_total() == 285);
}

TEST_CASE("Epoch plan: iterations_max cuts the last epoch short", "[scheduler][core]") {
  const EpochPlan bsp(Plan(ConsistencyMode::kBsp, 5));
  CHECK(bsp.epochs() == 2);
  CHECK(bsp.Steps(Epoch(1)) == Range{3, 5});
  CHECK(bsp.Samples(Epoch(1)) == 80);
  CHECK(bsp.samples_total() == 175);

  const EpochPlan asp(Plan(ConsistencyMode::kAsp, 12));
  CHECK(asp.epochs() == 2);
  CHECK(asp.Samples(Epoch(1)) == 20);

  CHECK(EpochPlan(Plan(ConsistencyMode::kBsp, 3)).epochs() == 1);
  CHECK(EpochPlan(Plan(ConsistencyMode::kBsp, 100)).steps_total() == 9);
}

TEST_CASE("Epoch plan: the samples of all slots add up to the epoch", "[scheduler][core]") {
  const EpochPlan plan(Plan(ConsistencyMode::kBsp, 0));
  int64_t sum = 0;
  for (int slot = 0; slot < 4; ++slot) sum += plan.SlotSamples(SlotId(slot), 3);
  CHECK(sum == 95);
  CHECK(plan.SlotSamples(SlotId(0), 0) == 0);
  CHECK(plan.SlotSamples(SlotId(0), 2) == 20);
  CHECK(plan.SlotSamples(SlotId(1), 3) == 25);
  CHECK(plan.SlotSamples(SlotId(3), 3) == 20);
}

}  // namespace
}  // namespace capstan::scheduler::epoch_plan_test
