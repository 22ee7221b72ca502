#include "worker/core/task_board.h"

#include <catch2/catch.hpp>
#include <vector>

namespace capstan::worker::task_board_test {
namespace {

// 4 slots of 8 samples over 70 samples: two whole iterations and one of 6 samples.
TaskBoard BspBoard() {
  return TaskBoard({.bsp = true, .slots = 4, .batch_size = 8, .train_samples = 70});
}

Assignment TrainSlots(uint64_t generation, std::vector<SlotLease> slots, int64_t first = 0) {
  return {.generation = Generation(generation),
          .phase = Phase::kTrain,
          .slots = std::move(slots),
          .epoch_first_iteration = Iteration(first)};
}

Assignment TrainSamples(uint64_t generation, std::vector<SampleLease> samples, int64_t start) {
  return {.generation = Generation(generation),
          .phase = Phase::kTrain,
          .samples = std::move(samples),
          .start_iteration = Iteration(start)};
}

TEST_CASE("TaskBoard: slot positions follow from the plan, the last iteration is shorter",
          "[worker][core]") {
  TaskBoard board = BspBoard();
  board.Take(TrainSlots(1, {{SlotId(1), Iteration(10), Iteration(13)}}, 10));
  const std::vector<Work> works = board.Upcoming(9);
  REQUIRE(works.size() == 3);
  CHECK(works[0].positions == Range{8, 16});
  CHECK(works[0].gradient_samples == 32);
  CHECK(works[1].positions == Range{40, 48});
  CHECK(works[2].positions.empty());  // 64 to 70 belong to slot 0.
  CHECK(works[2].gradient_samples == 6);
}

TEST_CASE("TaskBoard: with backups a gradient is divided by the samples of an update",
          "[worker][core]") {
  TaskBoard board({.bsp = true, .slots = 4, .backups = 1, .batch_size = 8, .train_samples = 70});
  board.Take(TrainSlots(1, {{SlotId(1), Iteration(0), Iteration(2)}}));
  CHECK(board.Next().gradient_samples == 24);
}

TEST_CASE("TaskBoard: the slots of an epoch cover every sample once", "[worker][core]") {
  TaskBoard board = BspBoard();
  std::vector<SlotLease> all;
  for (int m = 0; m < 4; ++m) all.push_back({SlotId(m), Iteration(0), Iteration(3)});
  board.Take(TrainSlots(1, all));
  std::vector<int> seen(70);
  for (const Work& work : board.Upcoming(100)) {
    for (int64_t p = work.positions.begin; p < work.positions.end; ++p) ++seen[p];
  }
  CHECK(seen == std::vector<int>(70, 1));
}

TEST_CASE("TaskBoard: own iterations start where the scheduler says and count what is acknowledged",
          "[worker][core]") {
  TaskBoard board({.batch_size = 4, .train_samples = 100});
  board.Take(TrainSamples(1, {{LeaseId(1), {0, 8}}}, 20));
  const Work first = board.Next();
  CHECK(first.iteration == Iteration(20));
  CHECK(first.gradient_samples == 4);
  REQUIRE(board.Start(first));
  CHECK(board.Next().iteration == Iteration(21));
  CHECK(board.iterations_done() == Iteration(20));
  board.Done(first, {.samples = 4, .loss_sum = 2.0, .correct = 3});
  CHECK(board.iterations_done() == Iteration(21));
  CHECK(board.totals().samples == 4);
  CHECK_FALSE(board.Idle());
}

TEST_CASE("TaskBoard: an older assignment is ignored", "[worker][core]") {
  TaskBoard board({.batch_size = 4, .train_samples = 100});
  CHECK(board.Take(TrainSamples(2, {{LeaseId(1), {0, 8}}}, 0)));
  CHECK_FALSE(board.Take(TrainSamples(1, {}, 0)));
  CHECK(board.Next().kind == Work::Kind::kTrain);
}

TEST_CASE("TaskBoard: phases go from training over evaluation to export and the end",
          "[worker][core]") {
  TaskBoard board({.batch_size = 4, .evaluation_batch_size = 10, .train_samples = 4});
  CHECK(board.Idle());
  board.Take(TrainSamples(1, {{LeaseId(1), {0, 4}}}, 0));
  const Work train = board.Next();
  REQUIRE(board.Start(train));
  board.Done(train, {.samples = 4});
  CHECK(board.Idle());
  board.Take(
      {.generation = Generation(2), .phase = Phase::kEvaluate, .samples = {{LeaseId(2), {0, 15}}}});
  CHECK(board.Upcoming(9).size() == 2);
  for (const Work& work : board.Upcoming(9)) {
    CHECK(work.kind == Work::Kind::kEvaluate);
    REQUIRE(board.Start(work));
    board.Done(work, {.samples = work.positions.size(), .loss_sum = 1.0, .correct = 5});
  }
  CHECK(board.Idle());
  CHECK(board.sample_progress()[0].correct == 10);
  CHECK(board.totals().samples == 4);  // Evaluation is not training.
  board.Take({.generation = Generation(3), .phase = Phase::kExport, .export_path = "out"});
  CHECK(board.Next().export_path == "out");
  CHECK_FALSE(board.Idle());
  board.Exported();
  CHECK(board.Idle());
  // The exported model must be moved: that is other work.
  board.Take({.generation = Generation(4),
              .phase = Phase::kExport,
              .export_path = "there",
              .staged_path = "out"});
  CHECK(board.Next().export_path == "there");
  CHECK(board.Next().staged_path == "out");
  CHECK_FALSE(board.exported());
  board.Exported();
  CHECK(board.Idle());
  board.Take({.generation = Generation(5), .phase = Phase::kFinish});
  CHECK(board.Next().kind == Work::Kind::kFinish);
}

TEST_CASE("TaskBoard: staleness is counted, the last entry takes the rest", "[worker][core]") {
  TaskBoard board({});
  board.SawRead({.staleness = 0});
  board.SawRead({.staleness = 2});
  board.SawRead({.staleness = 1000});
  CHECK(board.totals().staleness_counts[0] == 1);
  CHECK(board.totals().staleness_counts[2] == 1);
  CHECK(board.totals().staleness_counts.size() == TaskBoard::kStalenessEntriesMax);
  CHECK(board.totals().staleness_counts.back() == 1);
}

TEST_CASE(
    "TaskBoard: paused, it starts nothing, is idle when the begun is done, and goes on exactly",
    "[worker][core]") {
  TaskBoard board({.batch_size = 4, .train_samples = 100});
  Assignment assignment = TrainSamples(1, {{LeaseId(1), {0, 16}}, {LeaseId(2), {16, 24}}}, 7);
  board.Take(assignment);
  const Work first = board.Next();
  REQUIRE(board.Start(first));
  assignment.generation = Generation(2);
  assignment.paused = true;
  board.Take(assignment);
  CHECK(board.Next().kind == Work::Kind::kNone);
  CHECK_FALSE(board.Idle());
  board.Done(first, {.samples = 4});
  CHECK(board.Idle());
  const std::vector<SampleProgress> progress = board.sample_progress();
  REQUIRE(progress.size() == 2);  // The leases stay, and are reported.
  CHECK(progress[0].position_done == 4);
  assignment.generation = Generation(3);
  assignment.paused = false;
  board.Take(assignment);
  CHECK_FALSE(board.Idle());
  CHECK(board.Next().positions == Range{4, 8});
  CHECK(board.Next().iteration == Iteration(8));
}

TEST_CASE("TaskBoard: it is not idle before a push of a slot that was taken away is acknowledged",
          "[worker][core]") {
  TaskBoard board = BspBoard();
  board.Take(TrainSlots(1, {{SlotId(1), Iteration(0), Iteration(3)}}));
  const Work work = board.Next();
  REQUIRE(board.Start(work));
  board.Take(TrainSlots(2, {}));
  CHECK_FALSE(board.Idle());
  CHECK(board.slot_progress().empty());  // It covers the current assignment alone.
  board.Done(work, {.samples = 8});
  CHECK(board.Idle());
}

TEST_CASE("TaskBoard: paused, the run of a program goes on while it rests", "[worker][core]") {
  TaskBoard board({.batch_size = 1, .train_samples = 2});
  Assignment assignment = TrainSamples(1, {{LeaseId(1), {1, 2}}}, 0);
  board.Take(assignment);
  const Work run = board.Next();
  CHECK(run.positions == Range{1, 2});
  REQUIRE(board.Start(run));
  assignment.generation = Generation(2);
  assignment.paused = true;
  board.Take(assignment);
  CHECK_FALSE(board.Idle());
  board.SetResting();
  CHECK(board.Idle());
  assignment.generation = Generation(3);
  assignment.paused = false;
  board.Take(assignment);
  CHECK_FALSE(board.Idle());
  board.GiveUp(run);  // The lease has gone.
  board.Take({.generation = Generation(4), .phase = Phase::kFinish});
  CHECK(board.Idle());
}

}  // namespace
}  // namespace capstan::worker::task_board_test
