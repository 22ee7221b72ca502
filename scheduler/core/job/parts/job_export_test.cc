// Tests the export of a job's model to its place.
#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/job_fixture.h"

namespace capstan::scheduler::job_export_test {
namespace {

// A BSP job of two tasks that has ended its training; rank 0 exports. The shell publishes only when
// the test calls it.
struct Fixture : testing::JobFixture {
  explicit Fixture(std::optional<RestoreFrom> restore = std::nullopt, bool log = false)
      : JobFixture(ConsistencyMode::kBsp, /*workers=*/2, /*test_count=*/0, Objective::kClasses,
                   restore, log) {
    shell_publishes = false;
    Start();
    Train();
  }
  void Train() {
    for (int epoch = 0; epoch < 2; ++epoch) {
      Finish(0);
      Finish(1);
    }
    REQUIRE(View().phase == JobPhase::kExporting);
    REQUIRE(Of(0).phase == TaskPhase::kExport);
  }
};

TEST_CASE("Job export: the model is written apart, and in its place once it has been moved",
          "[scheduler][core]") {
  Fixture job;
  CHECK(job.Of(0).export_path == "/out/.export-0-10");
  CHECK(job.Of(0).staged_path.empty());
  const uint64_t durable = job.run->parts().durable_version();
  job.Finish(0);
  CHECK(job.run->parts().durable_version() > durable);
  CHECK(job.phase() == JobPhase::kExporting);
  CHECK(job.View().detail == "moves the model to /out");
  const auto model = job.run->TakeFiles().model;
  REQUIRE(model);
  CHECK(model->exporter == job.Key(0));
  CHECK(model->staged == "/out/.export-0-10");
  CHECK(model->folder == "/out");
  const uint64_t staged = job.run->parts().durable_version();
  job.Finish(0);  // The report is repeated.
  CHECK(job.run->parts().durable_version() == staged);
  CHECK_FALSE(job.run->TakeFiles().model);
  CHECK(job.run->parts().exporter.Awaits(job.Key(0)));
  job.run->OnModelPublished(model->exporter, absl::OkStatus(), job.now, job.events);
  CHECK(job.phase() == JobPhase::kFinishing);
  CHECK_FALSE(job.run->parts().exporter.Awaits(job.Key(0)));
}

TEST_CASE("Job export: other hosts write into the folder of its writer, and while it writes",
          "[scheduler][core]") {
  Fixture job;
  CHECK(job.run->parts().WritesInto("/out/.export-0-10"));
  for (const char* node : {"worker-0", "worker-1", "server-1", "server-2"}) {
    CHECK(job.run->parts().RunsOn(node));
  }
  for (const char* node : {"worker-9", "server-9", ""}) CHECK_FALSE(job.run->parts().RunsOn(node));
  for (const char* folder : {"", "/out", "/out/.export-1-11", "/checkpoints/checkpoint-1"}) {
    CHECK_FALSE(job.run->parts().WritesInto(folder));
  }
  SECTION("until the model is whole") { job.Finish(0); }
  SECTION("or its writer has died") {
    job.Died("worker-0");
    CHECK_FALSE(job.run->parts().RunsOn("worker-0"));
    CHECK(job.run->parts().WritesInto("/out/.export-1-11"));
  }
  SECTION("or the job has ended") { job.run->End(JobState::kStopped, {}, job.now, job.events); }
  CHECK_FALSE(job.run->parts().WritesInto("/out/.export-0-10"));
}

struct FailedExport : Fixture {
  FailedExport() {
    TaskReport report = Base(0);
    report.failure = {FailureReason::kOutputFailed, "/out: No space left on device"};
    REQUIRE_OK(Send(report));
  }
};

TEST_CASE("Job export: a model that cannot be written is kept, and the job says for how long",
          "[scheduler][core]") {
  FailedExport job;
  CHECK(job.run->parts().state == JobState::kRunning);
  CHECK(job.phase() == JobPhase::kExporting);
  CHECK_FALSE(job.run->parts().WritesInto("/out/.export-0-10"));
  CHECK(job.Of(1).phase == TaskPhase::kIdle);  // No task writes the model without a request.
  const JobView view = job.View();
  REQUIRE(view.model_kept_until);
  CHECK(*view.model_kept_until == job.now + absl::Hours(1));
  CHECK(job.run->NextDeadline() <= *view.model_kept_until);
  CHECK_THAT(view.detail, Catch::Contains("cannot be written to /out") &&
                              Catch::Contains("kept for 1 h") &&
                              Catch::Contains("capstan job export job-1 --to=FOLDER") &&
                              Catch::Contains("No space left on device"));
  CHECK(view.restarts == 0);
  SECTION("it is written where somebody asks for it") {
    const uint64_t durable = job.run->parts().durable_version();
    REQUIRE_OK(job.run->AskExport("/new", job.now, job.events));
    CHECK(job.run->parts().durable_version() > durable);
    CHECK(job.Of(1).export_path == "/new/.export-1-11");
    CHECK(job.View().model_folder == "/new");
    CHECK_FALSE(job.View().model_kept_until);
    job.Finish(1);
    const auto model = job.run->TakeFiles().model;
    REQUIRE(model);
    CHECK(model->folder == "/new");
    job.run->OnModelPublished(model->exporter, absl::OkStatus(), job.now, job.events);
    CHECK(job.phase() == JobPhase::kFinishing);
    CHECK_STATUS(job.run->AskExport("/other", job.now, job.events),
                 absl::StatusCode::kFailedPrecondition, "keeps no model");
  }
  SECTION("it is kept again if that fails, too") {
    REQUIRE_OK(job.run->AskExport("", job.now, job.events));
    CHECK(job.Of(1).export_path == "/out/.export-1-11");
    TaskReport report = job.Base(1);
    report.failure = {FailureReason::kOutputFailed, "Permission denied"};
    REQUIRE_OK(job.Send(report));
    CHECK(job.run->parts().state == JobState::kRunning);
    REQUIRE(job.View().model_kept_until);
  }
  SECTION("after that hour the job has failed") {
    job.ApplyAll();
    job.Advance(absl::Hours(1));
    CHECK(job.run->parts().state == JobState::kFailed);
    CHECK(job.View().failure.reason == FailureReason::kOutputFailed);
    CHECK_THAT(job.View().failure.message,
               Catch::Contains("No space left on device") && Catch::Contains("nobody exported it"));
    CHECK_FALSE(job.View().model_kept_until);
    CHECK_STATUS(job.run->AskExport("/new", job.now, job.events),
                 absl::StatusCode::kFailedPrecondition, "it has ended");
  }
  SECTION("a scheduler that starts again gives it its whole time") {
    job.now = job.now + absl::Minutes(50);
    job.run->RestartLimits(job.now, absl::Seconds(10));
    CHECK(*job.View().model_kept_until == job.now + absl::Hours(1));
  }
  SECTION("the job can be stopped") {
    job.run->End(JobState::kStopped, {}, job.now, job.events);
    CHECK(job.run->parts().state == JobState::kStopped);
  }
}

TEST_CASE("Job export: that a model cannot be written is no failure of any other task",
          "[scheduler][core]") {
  Fixture job;
  TaskReport report = job.Base(1);
  report.failure = {FailureReason::kOutputFailed, "Permission denied"};
  REQUIRE_OK(job.Send(report));
  CHECK(job.run->parts().state == JobState::kFailed);
}

TEST_CASE("Job export: once the model is written its writer may die", "[scheduler][core]") {
  Fixture job;
  job.Finish(0);
  job.Died("worker-0");
  CHECK(job.Of(1).phase == TaskPhase::kIdle);
  SECTION("it is moved all the same") {
    job.Publish();
    CHECK(job.phase() == JobPhase::kFinishing);
  }
  SECTION("it cannot be moved: another task writes it") {
    job.Publish(absl::NotFoundError("no such file"));
    CHECK(job.Seen<ModelLeftToTask>().empty());
    REQUIRE(job.Of(1).phase == TaskPhase::kExport);
    CHECK(job.Of(1).export_path == "/out/.export-1-11");
    CHECK(job.Of(1).staged_path.empty());
  }
}

TEST_CASE("Job export: who has written what the scheduler cannot move is told to move it",
          "[scheduler][core]") {
  Fixture job;
  job.Finish(0);
  job.Publish(absl::NotFoundError("no such file"));
  REQUIRE(job.Seen<ModelLeftToTask>().size() == 1);
  CHECK(job.Seen<ModelLeftToTask>()[0].why == "no such file");
  CHECK(job.Of(0).phase == TaskPhase::kExport);
  CHECK(job.Of(0).export_path == "/out");
  CHECK(job.Of(0).staged_path == "/out/.export-0-10");
  SECTION("it does") {
    job.Finish(0);
    CHECK(job.phase() == JobPhase::kFinishing);
  }
  SECTION("its worker is drained: it moves the model first") {
    job.run->MoveTask(Rank(0), "worker-0 is drained", job.now, job.events);
    CHECK(job.Of(0).phase == TaskPhase::kExport);
    CHECK(job.Of(0).staged_path == "/out/.export-0-10");
    job.Finish(0);
    CHECK(job.phase() == JobPhase::kFinishing);
  }
  SECTION("it says once more that it has written it") {
    TaskReport late = job.Base(0);
    late.assignment_seen = Generation(late.assignment_seen.value() - 1);
    late.exported = true;
    REQUIRE_OK(job.Send(late));
    CHECK(job.phase() == JobPhase::kExporting);
  }
  SECTION("it dies: another writes it anew, and the scheduler tries again") {
    job.Died("worker-0");
    CHECK(job.Of(1).export_path == "/out/.export-1-11");
    CHECK(job.Of(1).staged_path.empty());
    job.Finish(1);
    job.Publish();
    CHECK(job.phase() == JobPhase::kFinishing);
  }
}

// Rank 0 is in its third incarnation, and rank 1 in its second, which is not ready yet.
struct OlderLeft : Fixture {
  OlderLeft() {
    for (const int rank : {1, 0, 0}) {
      Died(Node(rank));
      Place(rank);
    }
  }
};

// A task moves its model even if it was taken for dead before. It then removes what earlier
// incarnations have staged, so that none of them may write the model after it.
TEST_CASE("Job export: after a task was told to move its model only later incarnations write it",
          "[scheduler][core]") {
  OlderLeft job;
  job.Hello(0);
  CHECK(job.Of(0).export_path == "/out/.export-0-30");
  job.Finish(0);
  job.Publish(absl::NotFoundError("no such file"));
  REQUIRE(job.Of(0).staged_path == "/out/.export-0-30");
  job.Died("worker-0");
  SECTION("an earlier one begins again") {
    job.Hello(1);
    REQUIRE(job.run->parts().tasks.Find(job.Key(1)) == nullptr);
    CHECK_FALSE(job.Seen<TaskDied>().back().counted);
    CHECK_THAT(job.Seen<TaskDied>().back().failure.message, Catch::Contains("a later incarnation"));
    job.Place(1);
    job.Hello(1);
    CHECK(job.Of(1).export_path == "/out/.export-1-31");
    job.Finish(1);
    job.Publish();
    CHECK(job.phase() == JobPhase::kFinishing);
  }
  SECTION("a later one does it, and the earlier one stays") {
    job.Place(0);
    job.Hello(0);
    job.Hello(1);
    CHECK(job.Of(0).export_path == "/out/.export-0-40");
    CHECK(job.Of(1).phase == TaskPhase::kIdle);
  }
}

TEST_CASE("Job export: the earliest incarnation writes the model, so that others may after it",
          "[scheduler][core]") {
  FailedExport job;
  job.Place(0);
  job.Hello(0);
  REQUIRE_OK(job.run->AskExport("", job.now, job.events));
  CHECK(job.Of(0).phase == TaskPhase::kIdle);
  CHECK(job.Of(1).export_path == "/out/.export-1-11");
}

TEST_CASE("Job export: servers that die once the model is in its place do not matter",
          "[scheduler][core]") {
  Fixture job(std::nullopt, /*log=*/true);
  SECTION("before it is written they are waited for") {
    job.Died("server-1");
    CHECK(job.phase() == JobPhase::kRecovering);
  }
  SECTION("before it is written, and it is written all the same") {
    job.Died("server-1");
    job.Finish(0);
    CHECK(job.phase() == JobPhase::kExporting);
    job.Advance(2 * job.plan.server_wait);
    job.Publish();
    CHECK(job.phase() == JobPhase::kFinishing);
  }
  SECTION("while it is moved") {
    job.Finish(0);
    job.Died("server-1");
    CHECK(job.phase() == JobPhase::kExporting);
    CHECK(job.View().detail == "moves the model to /out");
    job.Publish();
    CHECK(job.phase() == JobPhase::kFinishing);
  }
  SECTION("after that") {
    job.Finish(0);
    job.Publish();
    job.Died("server-1");
    CHECK(job.phase() == JobPhase::kFinishing);
  }
}

// The job has no log and no checkpoint, so lost shards end it if it needs them.
TEST_CASE("Job export: while a model is moved nobody else is missed", "[scheduler][core]") {
  Fixture job;
  job.Finish(0);
  SECTION("servers die") {
    job.Died("server-1");
    job.Died("server-2");
  }
  SECTION("a server has lost its disk, another one is out of memory") {
    const auto fails = [&](const std::string& server, FailureReason reason) {
      TableReport report{.job = "job-1", .routing = Generation(1), .membership = Generation(1)};
      report.failure = {reason, "no more"};
      job.run->OnTableReport(server, report, job.now, job.events);
    };
    fails("server-1", FailureReason::kServerLost);
    fails("server-2", FailureReason::kOutOfMemory);
  }
  SECTION("all workers die, and none comes back in time") {
    job.Died("worker-0");
    job.Died("worker-1");
    job.Advance(2 * job.plan.worker_wait);
    CHECK(job.run->NextDeadline() > job.now);
    CHECK(job.run->parts().UnplacedRanks().empty());
  }
  SECTION("tasks crash more often than they may") {
    job.Exit(0, 1);
    job.Exit(1, 1);
    CHECK(job.plan.max_restarts == 1);
    for (const TaskDied& died : job.Seen<TaskDied>()) CHECK_FALSE(died.counted);
  }
  SECTION("a task gives up") {
    TaskReport report = job.Base(1);
    report.failure = {FailureReason::kOutOfMemory, "no memory"};
    REQUIRE_OK(job.Send(report));
    CHECK(job.run->parts().tasks.Find(job.Key(1)) == nullptr);
  }
  SECTION("a server stands") { job.Advance(2 * JobRun::Options().server_limit); }
  CHECK(job.phase() == JobPhase::kExporting);
  job.Publish();
  for (int rank = 0; rank < 2; ++rank) job.Exit(rank, 0);
  CHECK(job.run->parts().state == JobState::kSucceeded);
}

TEST_CASE("Job export: who died while a model was moved is missed if it cannot be moved",
          "[scheduler][core]") {
  Fixture job;
  job.Finish(0);
  SECTION("servers, once the writer is dead, too") {
    job.Died("server-1");
    job.Died("worker-0");
    job.Publish(absl::NotFoundError("no such file"));
    REQUIRE(job.run->parts().ended());
    CHECK(job.View().failure.reason == FailureReason::kServerLost);
  }
  SECTION("servers, once the writer that was to move it dies") {
    job.Died("server-1");
    job.Publish(absl::NotFoundError("no such file"));
    CHECK(job.phase() == JobPhase::kExporting);
    job.Exit(0, 1);
    CHECK(job.Seen<TaskDied>().back().counted);
    REQUIRE(job.run->parts().ended());
    CHECK(job.View().failure.reason == FailureReason::kServerLost);
  }
  SECTION("workers, from then on") {
    job.Died("worker-0");
    job.Died("worker-1");
    job.ApplyAll();
    job.Advance(2 * job.plan.worker_wait);
    job.Publish(absl::NotFoundError("no such file"));
    CHECK(job.phase() == JobPhase::kExporting);
    CHECK(job.run->parts().UnplacedRanks().size() == 2);
    job.Advance(job.plan.worker_wait);
    REQUIRE(job.run->parts().ended());
    CHECK(job.View().failure.reason == FailureReason::kNoHeartbeat);
  }
  SECTION("the writer, that cannot move it either") {
    job.Publish(absl::NotFoundError("no such file"));
    TaskReport report = job.Base(0);
    report.failure = {FailureReason::kUserError, "cannot move it"};
    REQUIRE_OK(job.Send(report));
    REQUIRE(job.run->parts().ended());
    CHECK(job.View().failure.message == "task 0 on worker-0: cannot move it");
  }
}

TEST_CASE("Job export: a job that goes back forgets the model that it had written",
          "[scheduler][core]") {
  Fixture job(RestoreFrom{.folder = "/old/checkpoint-1"});
  const TaskKey before = job.Key(0);
  job.Finish(0);
  job.Died("server-1");
  CHECK(job.Seen<WentBack>().empty());
  job.Died("worker-0");
  job.Publish(absl::NotFoundError("no such file"));
  REQUIRE(job.Seen<WentBack>().size() == 1);
  CHECK_FALSE(job.run->parts().exporter.Awaits(before));
  // This report is late, and has no effect on the job, which trains again.
  job.run->OnModelPublished(before, absl::OkStatus(), job.now, job.events);
  CHECK(job.phase() == JobPhase::kRecovering);
  job.Place(0);
  job.Place(1);
  job.Start();
  job.Train();
  CHECK(job.Of(0).export_path == "/out/.export-0-20");
  job.Finish(0);
  CHECK(job.phase() == JobPhase::kExporting);
  job.Publish();
  CHECK(job.phase() == JobPhase::kFinishing);
}

}  // namespace
}  // namespace capstan::scheduler::job_export_test
