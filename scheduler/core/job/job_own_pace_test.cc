// Tests a job whose programs push and pull at their own pace: each rank has its own run.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/job_fixture.h"

namespace capstan::scheduler::job_own_pace_test {
namespace {

using testing::JobFixture;

std::vector<Rank> WithoutPlace(const JobFixture& job) { return job.run->parts().UnplacedRanks(); }

std::string StateOf(const JobFixture& job, size_t rank) { return job.View().tasks.at(rank).state; }

// The rank, which was placed just now, gets its work.
void Join(JobFixture& job, int rank) {
  job.Hello(rank);
  job.ApplyAll();
  job.Hello(rank);
}

// There is no free slot.
void Yield(JobFixture& job) {
  for (const Rank rank : job.run->parts().YieldingRanks()) {
    job.run->MoveTask(rank, "another rank needs its slot", job.now, job.events);
  }
}

// Lets the rank report for `time` that server-1 does not answer.
void BeCutOff(JobFixture& job, int rank, absl::Duration time) {
  for (const Instant end = job.now + time; job.now < end; job.Advance(absl::Seconds(1))) {
    if (!job.run->parts().tasks.at(Rank(rank)).placed()) continue;
    TaskReport report = job.Base(rank);
    report.wait = {.what = "pull", .peer = "server-1", .silent = {"server-1"}};
    REQUIRE_OK(job.Send(report));
  }
}

TEST_CASE("Job: each rank gets its own run, also again, and the job ends with the last",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace();
  job.Start();
  const auto runs_of = [&job](int rank) {
    std::vector<int64_t> runs;
    for (const SampleLease& lease : job.Of(rank).samples) {
      for (int64_t at = lease.positions.begin; at < lease.positions.end; ++at) runs.push_back(at);
    }
    return runs;
  };
  CHECK(runs_of(0) == std::vector<int64_t>{0});
  CHECK(runs_of(1) == std::vector<int64_t>{1});
  job.Exit(1, 1);
  job.Finish(0);
  CHECK(runs_of(0).empty());  // Nobody gets another's run.
  job.Place(1);
  job.Hello(1);
  job.ApplyAll();
  job.Hello(1);
  CHECK(runs_of(1) == std::vector<int64_t>{1});
  CHECK(job.phase() == JobPhase::kTraining);
  job.Finish(1);
  CHECK(job.phase() == JobPhase::kExporting);
}

TEST_CASE("Job: a rank whose run is done gives its slot to a rank without a place",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace(/*workers=*/3);
  job.Start();
  job.Finish(0);
  Yield(job);
  CHECK(job.Of(0).phase == TaskPhase::kIdle);  // Nobody needs it.
  job.Died("worker-1");
  REQUIRE(WithoutPlace(job) == std::vector<Rank>{Rank(1)});
  Yield(job);
  CHECK(job.Of(0).phase == TaskPhase::kFinish);
  CHECK(StateOf(job, 0) == "finished");
  CHECK(job.Of(2).phase == TaskPhase::kTrain);
  job.Exit(0, 0);
  CHECK_FALSE(job.Seen<TaskDied>().back().failure.happened());
  CHECK(StateOf(job, 0) == "finished");
  CHECK(WithoutPlace(job) == std::vector<Rank>{Rank(1)});

  job.Place(1);
  Join(job, 1);
  job.Finish(1);
  job.Finish(2);
  REQUIRE(job.phase() == JobPhase::kExporting);
  CHECK(WithoutPlace(job).empty());
  CHECK(job.Of(2).phase == TaskPhase::kExport);  // The earlier incarnation.
  job.Finish(2);
  job.Exit(1, 0);
  job.Exit(2, 0);
  CHECK(job.View().state == JobState::kSucceeded);
  CHECK(job.View().samples_done == 3);
  CHECK(job.View().restarts == 1);
}

TEST_CASE("Job: only as many slots are yielded as ranks lack, and what was said is not taken back",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace(/*workers=*/3);
  job.Start();
  job.Finish(0);
  job.Finish(1);
  job.Died("worker-2");
  Yield(job);
  Yield(job);
  CHECK(job.Of(0).phase == TaskPhase::kFinish);
  CHECK(job.Of(1).phase == TaskPhase::kIdle);
  job.Place(2);  // Another place is free by now, and the task may have exited.
  CHECK(job.Of(0).phase == TaskPhase::kFinish);
  SECTION("it exits") { job.Exit(0, 0); }
  SECTION("it does not exit") {
    TaskReport report = job.Base(0);
    report.idle = true;
    for (int second = 0; second < 11; ++second) {
      if (job.run->parts().tasks.at(Rank(0)).placed()) REQUIRE_OK(job.Send(report));
      job.Advance(absl::Seconds(1));
    }
    CHECK(job.Seen<TaskDied>().back().failure.reason == FailureReason::kHang);
  }
  CHECK_FALSE(job.run->parts().tasks.at(Rank(0)).placed());
  CHECK_FALSE(job.Seen<TaskDied>().back().counted);
  CHECK(WithoutPlace(job).empty());
}

TEST_CASE("Job: a rank whose run is done is not started again, and its failure is not the job's",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace();
  job.Start();
  job.Finish(0);
  SECTION("it crashes") { job.Exit(0, 1); }
  SECTION("its worker dies") { job.Died("worker-0"); }
  SECTION("it fails") {
    TaskReport report = job.Base(0);
    report.failure = {FailureReason::kUserError, "after its run"};
    REQUIRE_OK(job.Send(report));
  }
  CHECK_FALSE(job.Seen<TaskDied>().back().counted);
  CHECK(StateOf(job, 0) == "finished");
  CHECK(WithoutPlace(job).empty());
  job.ApplyAll();
  job.Finish(1);
  REQUIRE(job.phase() == JobPhase::kExporting);
  CHECK(WithoutPlace(job).empty());
  job.Died("worker-1");
  CHECK(WithoutPlace(job) == std::vector<Rank>{Rank(0)});  // It writes the model.
  job.Place(0);
  job.Hello(0);
  CHECK(job.Of(0).phase == TaskPhase::kExport);
}

TEST_CASE("Job: a slot on a worker that does not reach a server is not yielded while a task works",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace(/*workers=*/3);
  job.Start();
  const bool beside = GENERATE(false, true);
  if (beside) {  // The rank that finishes is on the same worker as the one that is cut off.
    job.Exit(0, 1);
    job.incarnations[0] = 2;
    job.run->PlaceTask(Rank(0), job.Key(0).incarnation, "worker-1", "w:1", job.now, job.events);
    Join(job, 0);
  }
  job.Finish(0);
  BeCutOff(job, 1, absl::Seconds(12));
  REQUIRE(WithoutPlace(job) == std::vector<Rank>{Rank(1)});
  Yield(job);
  CHECK(job.Of(0).phase == (beside ? TaskPhase::kIdle : TaskPhase::kFinish));
  if (!beside) return;
  job.ApplyAll();
  job.Finish(2);
  CHECK(job.run->parts().AvoidsWorkers());
  Yield(job);
  CHECK(job.Of(2).phase == TaskPhase::kFinish);
  CHECK(job.Of(0).phase == TaskPhase::kIdle);
  job.Exit(2, 0);
  CHECK_FALSE(job.run->parts().AvoidsWorkers());
  Yield(job);
  CHECK(job.Of(0).phase == TaskPhase::kFinish);
}

TEST_CASE("Job: a rank that is back on a worker without a link to a server is given another slot",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace(/*workers=*/3);
  job.Start();
  BeCutOff(job, 1, absl::Seconds(12));
  REQUIRE(WithoutPlace(job) == std::vector<Rank>{Rank(1)});
  job.Place(1);  // There was no other.
  Join(job, 1);
  job.Finish(0);
  BeCutOff(job, 1, absl::Seconds(1));
  REQUIRE(job.run->parts().task_watch.links().StrandedFrom(Rank(1)) == "server-1");
  Yield(job);
  CHECK(job.Of(0).phase == TaskPhase::kFinish);
}

TEST_CASE("Job: a rank whose run is done does not show that a server is reached",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace();
  job.Start();
  job.Finish(0);
  BeCutOff(job, 1, absl::Seconds(12));
  REQUIRE(job.Seen<LinkDied>().size() == 1);
  CHECK(job.Seen<LinkDied>()[0].shards_move);
}

TEST_CASE("Job: runs that are done in the checkpoint at which a job begins are not started",
          "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace(
      /*workers=*/2,
      RestoreFrom{.folder = "/old/checkpoint-4", .at = {.untrained = {{1, 2}}, .batches = 1}});
  REQUIRE(job.phase() == JobPhase::kPlacing);
  job.Died("worker-0");
  job.Died("worker-1");
  CHECK(WithoutPlace(job) == std::vector<Rank>{Rank(1)});
  job.Place(1);
  job.ApplyAll();
  Join(job, 1);
  REQUIRE(job.phase() == JobPhase::kTraining);
  CHECK(WithoutPlace(job).empty());
  CHECK(StateOf(job, 0) == "finished");
  job.Finish(1);
  CHECK(job.phase() == JobPhase::kExporting);
  CHECK(job.View().samples_done == 2);
}

}  // namespace
}  // namespace capstan::scheduler::job_own_pace_test
