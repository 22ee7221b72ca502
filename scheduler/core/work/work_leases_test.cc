// Tests the interface that the phases of a job use, for training by slots and by sample ranges.
#include "scheduler/core/work/work_leases.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/testing/status_matchers.h"
#include "scheduler/core/work/sample_work.h"
#include "scheduler/core/work/slot_work.h"

namespace capstan::scheduler::work_leases_test {
namespace {

constexpr Instant kNow;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
const std::vector<Rank> kRanks = {Rank(0), Rank(1)};

JobPlan Plan(ConsistencyMode mode) {
  JobPlan plan;
  plan.consistency.mode = mode;
  plan.workers = 2;
  plan.batch_size = 10;
  plan.consistency.slots = 4;
  plan.train_count = 400;  // BSP: 10 iterations.
  plan.test_count = 40;
  return plan;
}

std::unique_ptr<WorkLeases> Make(ConsistencyMode mode) {
  if (mode == ConsistencyMode::kBsp) return std::make_unique<SlotWork>(Plan(mode));
  return std::make_unique<SampleWork>(Plan(mode), absl::Seconds(60));
}

// Two live tasks that do the work of their leases.
struct Workers {
  explicit Workers(WorkLeases* leases) : work(*leases) {
    for (const Rank rank : kRanks) {
      tasks.Place(rank, Incarnation(1), "worker", "w:1", kNow);
      tasks.Renew(tasks.at(rank), /*preparing=*/false, kNow);
    }
  }
  void Grant() {
    work.Grant(kRanks, tasks);
    for (Task& task : tasks.all()) {
      task.assignment = {};
      task.assignment.paused = work.paused();
      work.AddTo(&task.assignment, task.rank);
      task.idle = false;
    }
  }
  void Finish(Rank rank) {
    TaskReport report;
    report.task = {"job", rank, Incarnation(1)};
    for (const SlotLease& lease : tasks.at(rank).assignment.slots) {
      report.slots.push_back({lease.slot, lease.end});
    }
    for (const SampleLease& lease : tasks.at(rank).assignment.samples) {
      report.samples.push_back({lease.id, lease.positions.end});
    }
    REQUIRE_OK(work.Validate(report));
    work.Report(report);
    tasks.at(rank).idle = true;
  }

  WorkLeases& work;
  JobTasks tasks{2, JobTasks::Options()};
};

TEST_CASE("Work leases: an epoch is trained once all that is leased is reported",
          "[scheduler][core]") {
  const auto work = Make(GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp));
  work->StartTraining(Epoch(0), nullptr);
  Workers workers(work.get());
  CHECK(work->SamplesDone() == 0);
  int rounds = 0;
  for (; !work->trained() && rounds < 100; ++rounds) {
    workers.Grant();
    CHECK(work->HasUnfinished(Rank(0)));
    for (const Rank rank : kRanks) workers.Finish(rank);
    CHECK_FALSE(work->HasUnfinished(Rank(0)));
  }
  CHECK(work->trained());
  CHECK(work->SamplesDone() == 400);
  CHECK(work->StepsDone(Epoch(0)) == (work->has_task_clocks() ? 40 : 10));
}

TEST_CASE("Work leases: a job is quiet once its tasks have ended what they began, until it goes on",
          "[scheduler][core]") {
  const auto work = Make(GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp));
  work->StartTraining(Epoch(0), nullptr);
  Workers workers(work.get());
  workers.Grant();
  CHECK_FALSE(work->quieting());
  work->PlanQuiet(/*due=*/true, kNever, /*samples_per_second=*/0, kNow);
  CHECK(work->quieting());
  CHECK_FALSE(work->IsQuiet(workers.tasks));
  if (!work->paused()) {
    workers.Grant();
    CHECK(workers.tasks.at(Rank(0)).assignment.slots.front().end == Iteration(2));
  } else {
    for (Task& task : workers.tasks.all()) task.assignment.paused = true;
  }
  workers.Finish(Rank(0));
  CHECK_FALSE(work->IsQuiet(workers.tasks));
  workers.Finish(Rank(1));
  CHECK(work->IsQuiet(workers.tasks));

  // Another job goes on with the rest.
  ResumePoint at;
  work->AddTo(&at, Epoch(0));
  const auto other = Make(work->has_task_clocks() ? ConsistencyMode::kSsp : ConsistencyMode::kBsp);
  other->StartTraining(Epoch(0), &at);
  CHECK(other->SamplesDone() == work->SamplesDone());
  CHECK(other->StepsDone(Epoch(0)) == work->StepsDone(Epoch(0)));
  CHECK_FALSE(other->trained());

  work->GoOn();
  CHECK_FALSE(work->quieting());
  CHECK_FALSE(work->IsQuiet(workers.tasks));
}

TEST_CASE("Work leases: with backups a slow task moves no checkpoint and holds up no epoch",
          "[scheduler][core]") {
  JobPlan plan = Plan(ConsistencyMode::kBsp);
  plan.consistency.backups = 2;  // The slots of one task.
  SlotWork work(plan);
  work.StartTraining(Epoch(0), nullptr);
  Workers workers(&work);
  work.PlanQuiet(/*due=*/false, /*due_steps=*/5, /*samples_per_second=*/0, kNow);
  workers.Grant();
  workers.Finish(Rank(0));
  CHECK(work.StepsDone(Epoch(0)) == 5);
  work.PlanQuiet(/*due=*/true, 5, 0, kNow);
  workers.Grant();
  for (const Rank rank : kRanks) {
    CHECK(workers.tasks.at(rank).assignment.slots.front().end == Iteration(5));
  }
  workers.Finish(Rank(0));
  CHECK_FALSE(work.IsQuiet(workers.tasks));
  workers.Finish(Rank(1));
  CHECK(work.IsQuiet(workers.tasks));

  work.GoOn();
  workers.Grant();
  workers.Finish(Rank(0));
  CHECK(work.trained());
}

TEST_CASE("Work leases: ids of sample leases grow from phase to phase", "[scheduler][core]") {
  const auto work = Make(ConsistencyMode::kSsp);
  work->StartTraining(Epoch(0), nullptr);
  Workers workers(work.get());
  workers.Grant();
  const LeaseId trained = workers.tasks.at(Rank(1)).assignment.samples.back().id;
  SECTION("to the evaluation") {}
  SECTION("and when the job goes back") { work->Clear(); }
  work->StartEvaluation({0, 40});
  work->GrantEvaluation(kRanks);
  CHECK(work->samples().HeldBy(Rank(0)).front().id > trained);
}

}  // namespace
}  // namespace capstan::scheduler::work_leases_test
