#include "scheduler/core/job/job_run.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics/score_counts.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/job_fixture.h"

namespace capstan::scheduler::job_run_test {
namespace {

using testing::JobFixture;

TEST_CASE("Job: placing until the servers are ready, starting until the tasks are, then training",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  CHECK(job.phase() == JobPhase::kPlacing);
  job.Hello(0);
  CHECK(job.Of(0).phase == TaskPhase::kIdle);
  job.Apply("server-1");
  CHECK(job.View().detail == "waits for server-2 to make its tables");
  job.Apply("server-2");
  CHECK(job.phase() == JobPhase::kStarting);
  job.Hello(1);
  CHECK(job.phase() == JobPhase::kTraining);
  CHECK(job.Of(0).phase == TaskPhase::kIdle);  // The servers do not know yet that it is active.
  job.ApplyAll();
  CHECK(job.Of(0).phase == TaskPhase::kTrain);
  CHECK(job.Of(0).slots.size() == 2);
  CHECK(job.Of(1).slots.size() == 2);
}

TEST_CASE("Job: BSP from the first epoch to the export", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  CHECK(job.Of(0).slots[0] == SlotLease{SlotId(0), Iteration(0), Iteration(2)});
  job.Finish(0);
  CHECK(job.View().samples_done == 40);
  job.Finish(1);
  CHECK(job.Of(0).epoch == Epoch(1));
  CHECK(job.Of(0).epoch_first_iteration == Iteration(2));
  CHECK(job.Of(0).slots[0] == SlotLease{SlotId(0), Iteration(2), Iteration(4)});
  CHECK(job.View().iteration == 2);
  job.Finish(0);
  job.Finish(1);
  CHECK(job.phase() == JobPhase::kExporting);
  CHECK(job.Of(0).phase == TaskPhase::kExport);
  CHECK(job.Of(0).export_path == "/out/.export-0-10");
  CHECK(job.Of(1).phase == TaskPhase::kIdle);
  job.Finish(0);
  CHECK(job.Of(1).phase == TaskPhase::kFinish);
  job.Exit(0, 0);
  CHECK_FALSE(job.run->parts().ended());
  job.Exit(1, 0);
  CHECK(job.run->parts().state == JobState::kSucceeded);
  CHECK(job.View().samples_done == 160);
  CHECK(job.View().results.size() == 2);
  CHECK(job.View().tasks[0].state == "finished");
  CHECK(job.Seen<JobEnded>().size() == 1);
}

TEST_CASE("Job: evaluation is leased to all, and its sums become the epoch's result",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp, 2, /*test_count=*/400);
  job.Start();
  job.Finish(0);
  job.Finish(1);
  CHECK(job.phase() == JobPhase::kEvaluating);
  CHECK(job.Of(0).phase == TaskPhase::kEvaluate);
  CHECK(job.Of(0).samples.size() == 2);
  CHECK(job.Of(1).samples.size() == 1);
  job.Finish(0, 80.0, 120);
  job.Finish(1, 40.0, 60);
  CHECK(job.phase() == JobPhase::kTraining);
  const std::vector<EpochDone> done = job.Seen<EpochDone>();
  REQUIRE(done.size() == 1);
  CHECK(done[0].result.test_samples == 400);
  CHECK(done[0].result.test_loss == 0.5);
  CHECK(done[0].result.test_accuracy == 0.75);
}

// Returns the result of an epoch with these scores of clicks in the parts of two tasks.
EpochResult Evaluate(Objective objective, float first, float second) {
  JobFixture job(ConsistencyMode::kBsp, 2, /*test_count=*/400, objective);
  job.Start();
  for (const int rank : {0, 1}) job.Finish(rank);
  job.Finish(0, 80.0, 120, first);
  job.Finish(1, 40.0, 60, second);
  REQUIRE(job.Seen<EpochDone>().size() == 1);
  return job.Seen<EpochDone>()[0].result;
}

TEST_CASE("Job: clicks have the AUC of the scores of all parts, if all samples have a score",
          "[scheduler][core]") {
  // Rank 0 had [0, 160) and [320, 400), so 24 of 40 clicks score above every non-click.
  const EpochResult result = Evaluate(Objective::kClicks, 1.0f, -1.0f);
  CHECK(result.test_auc == 0.6);
  CHECK(result.test_accuracy == 0.75);
  CHECK_FALSE(result.test_rmse.has_value());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(Evaluate(Objective::kClicks, 1.0f, nan).test_auc.has_value());
  CHECK_FALSE(Evaluate(Objective::kClicks, 1.0f, 0.0f).test_auc.has_value());
}

TEST_CASE("Job: ratings have the root of their loss, and no accuracy; words have the loss alone",
          "[scheduler][core]") {
  const Objective objective = GENERATE(Objective::kRatings, Objective::kWords);
  const EpochResult result = Evaluate(objective, 1.0f, 1.0f);
  CHECK(result.test_loss == 0.5);
  CHECK(result.test_rmse.has_value() == (objective == Objective::kRatings));
  CHECK(result.test_rmse.value_or(std::sqrt(0.5)) == std::sqrt(0.5));
  CHECK_FALSE(result.test_auc.has_value());
  CHECK(result.test_accuracy == 0);
}

TEST_CASE("Job: SSP members start an epoch together, and who runs out of leases is not waited for",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kSsp);
  job.Start();
  for (const Member& member : job.run->parts().members.membership().members) {
    CHECK(member.active);
    CHECK(member.start_iteration == Iteration(0));
  }
  CHECK(job.Of(0).samples.size() == 2);
  CHECK(job.Of(1).samples.size() == 2);
  while (job.phase() == JobPhase::kTraining && job.Of(0).phase == TaskPhase::kTrain) job.Finish(0);
  CHECK_FALSE(job.run->parts().members.membership().members[0].active);
  CHECK(job.run->parts().members.membership().members[1].active);
  job.Finish(1);
  // The next epoch waits until every server has seen both inactive, and then active.
  CHECK(job.View().epoch == Epoch(1));
  CHECK(job.Of(0).phase == TaskPhase::kIdle);
  CHECK_FALSE(job.run->parts().members.membership().members[1].active);
  job.Apply("server-1");
  CHECK_FALSE(job.run->parts().members.membership().members[0].active);
  job.Apply("server-2");
  CHECK(job.run->parts().members.membership().members[0].active);
  CHECK(job.run->parts().members.membership().members[0].start_iteration == Iteration(6));
  CHECK(job.run->parts().members.membership().members[1].start_iteration == Iteration(6));
  CHECK(job.Of(0).samples.empty());
  job.ApplyAll();
  CHECK(job.Of(0).start_iteration == Iteration(6));
  CHECK_FALSE(job.Of(1).samples.empty());
}

TEST_CASE("Job: a crashed task's leases go to the others, its rank comes back as a new incarnation",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kAsp);
  job.Start();
  const Generation before = job.run->parts().members.membership().generation;
  TaskReport report = job.Base(1);
  const SampleLease lease = job.Of(1).samples[0];
  report.iterations = Iteration(1);
  report.samples = {{lease.id, lease.positions.begin + 10, 0, 0}};
  REQUIRE_OK(job.Send(report));
  job.Exit(1, 139);
  CHECK(job.run->parts().members.membership().generation > before);
  CHECK(job.run->parts().members.membership().members.size() == 1);
  CHECK(job.run->parts().UnplacedRanks() == std::vector<Rank>{Rank(1)});
  CHECK_STATUS(job.Send(report), absl::StatusCode::kAborted, "incarnation 11 is not wanted");
  int64_t trained = 10;
  const auto take = [&](int rank) {
    for (const SampleLease& held : job.Of(rank).samples) trained += held.positions.size();
    job.Finish(rank);
  };
  take(0);
  job.Place(1);
  job.Hello(1);
  CHECK(job.Of(1).phase == TaskPhase::kIdle);
  job.ApplyAll();
  CHECK(job.Of(1).phase == TaskPhase::kTrain);
  CHECK(job.Of(1).start_iteration == job.run->parts().tasks.at(Rank(0)).iterations);
  while (job.View().epoch == Epoch(0)) {
    if (!job.Of(0).samples.empty()) take(0);
    if (job.View().epoch == Epoch(0) && !job.Of(1).samples.empty()) take(1);
  }
  CHECK(trained == 80);
  CHECK(job.View().restarts == 1);
}

TEST_CASE("Job: one crash too many fails it with the first error", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  job.run->OnTaskExited(job.Key(1), {.exit_code = 0, .signal = 11, .last_lines = "boom"},
                        /*node_leaving=*/false, job.now, job.events);
  CHECK_FALSE(job.run->parts().ended());
  job.Place(1);
  job.Exit(1, 3);
  REQUIRE(job.run->parts().state == JobState::kFailed);
  CHECK(job.View().failure.reason == FailureReason::kTaskCrashed);
  CHECK_THAT(job.View().failure.message,
             Catch::Contains("task 1 on worker-1: ") && Catch::Contains("signal 11") &&
                 Catch::Contains("boom") && Catch::Contains("the first of 2 crashes"));
}

TEST_CASE("Job: a worker daemon's death is nobody's crash", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  for (int i = 0; i < 5; ++i) {
    job.Died("worker-1");
    CHECK_FALSE(job.run->parts().ended());
    CHECK(job.Of(0).slots.size() == 4);
    job.Place(1);
    job.Hello(1);
    job.ApplyAll();
    CHECK(job.Of(1).slots.size() == 2);
  }
  CHECK_FALSE(job.Seen<TaskDied>().back().counted);
}

TEST_CASE("Job: a silent task is dead and counts as a crash, unless it is excused",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  CHECK(job.run->NextDeadline() == job.now + absl::Seconds(3));
  job.now = job.now + absl::Seconds(3);
  CHECK(job.run->parts().tasks.Expired(job.now).size() == 2);
  job.run->ExpireTasks([](const NodeId& node) { return node == "worker-1"; }, job.now, job.events);
  const std::vector<TaskDied> died = job.Seen<TaskDied>();
  REQUIRE(died.size() == 1);
  CHECK(died[0].counted);
  CHECK(died[0].failure == Failure{FailureReason::kNoHeartbeat, "no report for 3.0 s"});
  job.now = job.now + absl::Milliseconds(2999);
  CHECK(job.run->parts().tasks.Expired(job.now).empty());
  job.now = job.now + absl::Milliseconds(1);
  CHECK(job.run->parts().tasks.Expired(job.now) == std::vector<Rank>{Rank(1)});
}

TEST_CASE("Job: without any worker it waits, then fails and names the last to die",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  for (const char* node : {"worker-0", "worker-1"}) {
    job.Died(node);
  }
  job.ApplyAll();
  CHECK(job.run->NextDeadline() == job.now + absl::Seconds(60));
  job.Advance(absl::Seconds(59));
  CHECK_THAT(job.View().detail, Catch::Contains("no worker task is alive since 59 s"));
  SECTION("nobody comes") {
    job.Advance(absl::Seconds(1));
    REQUIRE(job.run->parts().state == JobState::kFailed);
    CHECK(job.View().failure.reason == FailureReason::kNoHeartbeat);
    CHECK_THAT(job.View().failure.message, Catch::Contains("no live worker task for 1 min") &&
                                               Catch::Contains("worker-1 is gone"));
  }
  SECTION("one comes in time") {
    job.Place(0);
    job.Advance(absl::Seconds(10));
    CHECK_FALSE(job.run->parts().ended());
  }
}

TEST_CASE("Job: a lost server, a server's error and a task's error end it at once",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kSsp);
  job.Start();
  SECTION("server lost") {
    TaskReport trained = job.Base(0);
    trained.totals.samples = 10;
    REQUIRE_OK(job.Send(trained));
    job.Died("server-2");
    CHECK(job.View().failure.reason == FailureReason::kServerLost);
    CHECK_THAT(job.View().failure.message, Catch::StartsWith("server-2, which held shards"));
  }
  SECTION("server out of memory") {
    job.run->OnTableReport(
        "server-1", {"job-1", Generation(1), Generation(1), {FailureReason::kOutOfMemory, "8 GiB"}},
        job.now, job.events);
    CHECK(job.View().failure == Failure{FailureReason::kOutOfMemory, "server-1: 8 GiB"});
  }
  SECTION("diverged") {
    TaskReport report = job.Base(1);
    report.failure = {FailureReason::kDiverged, "layer conv1, iteration 40"};
    REQUIRE_OK(job.Send(report));
    CHECK(job.View().failure ==
          Failure{FailureReason::kDiverged, "task 1 on worker-1: layer conv1, iteration 40"});
  }
  CHECK(job.run->parts().state == JobState::kFailed);
  CHECK(job.run->parts().PlacedTasks().empty());
  CHECK_STATUS(job.Send(job.Base(0)), absl::StatusCode::kAborted, "not wanted");
}

TEST_CASE("Job: a server that does not apply what it is sent fails the job by name",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Apply("server-1");
  CHECK(job.run->NextDeadline() <= job.now + absl::Seconds(60));
  job.Advance(absl::Seconds(60));
  REQUIRE(job.run->parts().state == JobState::kFailed);
  CHECK(job.View().failure.reason == FailureReason::kHang);
  CHECK_THAT(job.View().failure.message, Catch::StartsWith("server-2 has not applied"));
}

TEST_CASE("Job: the exporter's death hands the export to another", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  for (int epoch = 0; epoch < 2; ++epoch) {
    job.Finish(0);
    job.Finish(1);
  }
  REQUIRE(job.Of(0).phase == TaskPhase::kExport);
  job.Died("worker-0");
  REQUIRE(job.Of(1).phase == TaskPhase::kExport);
  job.Finish(1);
  CHECK(job.phase() == JobPhase::kFinishing);
  // A task that does not exit does not prevent the job's end.
  job.Advance(absl::Seconds(10));
  CHECK(job.run->parts().state == JobState::kSucceeded);
}

TEST_CASE("Job: impossible figures are refused, and nothing changes", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kAsp);
  job.Start();
  const uint64_t revision = job.run->parts().revision;
  TaskReport report = job.Base(0);
  report.totals.samples = -1;
  CHECK_STATUS(job.Send(report), absl::StatusCode::kInvalidArgument,
               "samples_total: -1, expected 0");
  report = job.Base(0);
  report.samples = {{LeaseId(999), 1, 0, 0}};
  CHECK_STATUS(job.Send(report), absl::StatusCode::kInvalidArgument, "999 was never granted");
  report = job.Base(0);
  report.activity.done = -1;
  CHECK_STATUS(job.Send(report), absl::StatusCode::kInvalidArgument,
               "activity.done: -1, expected 0");
  report = job.Base(0);
  report.totals.staleness_counts.resize(65);
  CHECK_STATUS(job.Send(report), absl::StatusCode::kInvalidArgument,
               "staleness_counts: entries: 65, expected 0 to 64");
  CHECK(job.run->parts().revision == revision);
}

TEST_CASE("Job: figures are reported at most once a second, over all tasks", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kSsp);
  job.Start();
  TaskReport report = job.Base(0);
  report.totals = {20, 40.0, 10, {1, 1}};
  REQUIRE_OK(job.Send(report));
  CHECK(job.Seen<Report>().empty());
  job.now = job.now + absl::Seconds(1);
  report = job.Base(1);
  report.totals = {20, 20.0, 20, {0, 1, 1}, 60, 40};
  REQUIRE_OK(job.Send(report));
  const std::vector<Report> reports = job.Seen<Report>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].samples == 40);
  CHECK(reports[0].loss == 1.5);
  CHECK(reports[0].accuracy == 0.75);
  CHECK(reports[0].staleness_counts == std::vector<int64_t>{1, 2, 1});
  CHECK(job.View().staleness_counts == std::vector<int64_t>{1, 2, 1});
  CHECK(reports[0].rows_cached == 60);
  CHECK(reports[0].rows_pulled == 40);
  CHECK(job.View().rows_cached == 60);
  CHECK(job.View().rows_pulled == 40);
}

TEST_CASE("Job: stop ends it; what comes later changes nothing", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  job.run->End(JobState::kStopped, {}, job.now, job.events);
  CHECK(job.run->parts().state == JobState::kStopped);
  const uint64_t revision = job.run->parts().revision;
  job.run->End(JobState::kStopped, {}, job.now, job.events);
  job.Died("server-1");
  job.Advance(absl::Hours(1));
  CHECK(job.run->parts().state == JobState::kStopped);
  CHECK(job.run->parts().revision == revision);
  CHECK(job.run->NextDeadline() == Instant::InfiniteFuture());
}

// Issue 20: one server copied its tables before a push of the dead task arrived, another one after.
TEST_CASE("Job: no moment is taken while a server may take a push of a task that died",
          "[scheduler][core]") {
  JobFixture fixture(GENERATE(ConsistencyMode::kSsp, ConsistencyMode::kAsp));
  fixture.Start();
  REQUIRE_OK(
      fixture.run->AskCheckpoint(JobRun::AndThen::kTrainOn, fixture.now, fixture.events).status());
  REQUIRE(fixture.Of(0).paused);
  fixture.Exit(1, 1);
  TaskReport report = fixture.Base(0);
  report.idle = true;
  REQUIRE_OK(fixture.Send(report));
  CHECK(fixture.phase() == JobPhase::kTraining);
  fixture.Apply("server-1");
  CHECK(fixture.phase() == JobPhase::kTraining);
  fixture.Apply("server-2");
  CHECK(fixture.phase() == JobPhase::kCheckpointing);
}

// Seed 2671979549: what is copied at the end of an epoch is such a moment, too.
TEST_CASE("Job: no epoch ends while a server may take a push of a task that died",
          "[scheduler][core]") {
  JobFixture fixture(GENERATE(ConsistencyMode::kSsp, ConsistencyMode::kAsp));
  fixture.Start();
  REQUIRE_OK(
      fixture.run->AskCheckpoint(JobRun::AndThen::kTrainOn, fixture.now, fixture.events).status());
  fixture.Exit(1, 1);
  while (!fixture.Of(0).samples.empty()) fixture.Finish(0);
  CHECK(fixture.phase() == JobPhase::kTraining);
  fixture.Apply("server-1");
  CHECK(fixture.phase() == JobPhase::kTraining);
  fixture.Apply("server-2");
  CHECK(fixture.phase() == JobPhase::kCheckpointing);
}

TEST_CASE("Job: other hosts write into the folder of the checkpoint that is taken, and no other",
          "[scheduler][core]") {
  JobFixture fixture(ConsistencyMode::kAsp, 2, 0, Objective::kClasses,
                     RestoreFrom{.folder = "/old/checkpoint-4", .at = {.epoch = Epoch(0)}});
  CHECK(fixture.run->parts().MayGoBackTo("/old/checkpoint-4"));
  CHECK(fixture.run->parts().MayGoBackTo("/old/checkpoint-3"));  // The restored one may rest on it.
  CHECK(fixture.run->parts().MayGoBackTo("/checkpoints/checkpoint-1"));
  for (const char* folder :
       {"", "/", "/old", "/out", "/etc/checkpoint-1", "/checkpoints/..", "/old/..", "/checkpoints/",
        "/checkpoints/.export-0-7", "/checkpoints/checkpoint-", "/checkpoints/checkpoint-1/.."}) {
    CHECK_FALSE(fixture.run->parts().MayGoBackTo(folder));
  }
  fixture.run->End(JobState::kStopped, {}, fixture.now, fixture.events);
  CHECK_FALSE(fixture.run->parts().MayGoBackTo("/checkpoints/checkpoint-1"));

  JobFixture saves(ConsistencyMode::kAsp);
  saves.Start();
  REQUIRE_OK(saves.run->AskCheckpoint(JobRun::AndThen::kTrainOn, saves.now, saves.events).status());
  CHECK_FALSE(saves.run->parts().WritesInto("/checkpoints/checkpoint-1"));
  for (int rank = 0; rank < 2; ++rank) {
    TaskReport report = saves.Base(rank);
    report.idle = true;
    REQUIRE_OK(saves.Send(report));
  }
  REQUIRE(saves.phase() == JobPhase::kCheckpointing);
  CHECK(saves.run->parts().WritesInto("/checkpoints/checkpoint-1"));
  CHECK_FALSE(saves.run->parts().WritesInto("/checkpoints/checkpoint-2"));
  CHECK_FALSE(saves.run->parts().WritesInto("/checkpoints"));
}

TEST_CASE("Job: a checkpoint that waits for a backup's slot leaves no past deadline",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.plan.consistency.backups = 1;
  job.plan.checkpoint_interval = absl::Seconds(10);
  int last = 1;  // The task with the slow slot.
  SECTION("at the end of a segment") {
    job.plan.checkpoint_iterations = 1;
    job.Begin();
    job.Start();
    job.Finish(0);
  }
  SECTION("at the end of an epoch, before servers refuse a dead task's pushes") {
    last = 0;
    job.Begin();
    job.Start();
    job.Died(JobFixture::Node(1));
  }
  TaskReport report = job.Base(last);
  for (const SlotLease& lease : job.Of(last).slots) {
    report.slots.push_back({lease.slot, lease.end});
  }
  REQUIRE(report.slots.size() >= 2);
  report.slots.pop_back();
  REQUIRE_OK(job.Send(report));
  job.now = job.now + absl::Seconds(11);
  for (int rank = 0; rank <= last; ++rank) job.Hello(rank);
  job.run->Tick(job.now, job.events);
  CHECK(job.run->NextDeadline() > job.now);
  CHECK(job.phase() == JobPhase::kTraining);
  CHECK(job.View().epoch == Epoch(0));
}

}  // namespace
}  // namespace capstan::scheduler::job_run_test
