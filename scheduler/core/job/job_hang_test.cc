// Tests which tasks and servers count as hung, and which are only slow.
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/job_fixture.h"

namespace capstan::scheduler::job_hang_test {
namespace {

using testing::JobFixture;

TEST_CASE("Job: a task that is idle and leaves its work undone is taken for hung",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kAsp);
  job.Start();
  TaskReport report = job.Base(0);
  report.idle = true;
  for (int i = 0; i < 10; ++i) {
    REQUIRE_OK(job.Send(report));
    CHECK(job.Seen<TaskDied>().empty());
    job.Advance(absl::Seconds(1));
  }
  REQUIRE(job.Seen<TaskDied>().size() == 1);
  CHECK(job.Seen<TaskDied>()[0].failure.reason == FailureReason::kHang);
}

// Lets a task report `report(second)` at each second for six minutes. Returns its death, or nullopt
// if it lives.
template <typename ReportAt>
std::optional<TaskDied> SixMinutesOf(JobFixture& job, const ReportAt& report) {
  for (int second = 1; second <= 360; ++second) {
    job.Advance(absl::Seconds(1));
    if (const auto died = job.Seen<TaskDied>(); !died.empty()) return died.front();
    REQUIRE_OK(job.Send(report(second)));
    if (job.plan.workers > 1) job.Hello(1);
  }
  return std::nullopt;
}

void CheckHung(const std::optional<TaskDied>& died, const std::string& why) {
  REQUIRE(died.has_value());
  CHECK(died->counted);
  CHECK(died->failure.reason == FailureReason::kHang);
  CHECK_THAT(died->failure.message, Catch::Contains(why));
}

TEST_CASE("Job: a task that has work and does not move on is hung, one that waits is not",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kAsp, /*workers=*/1);
  job.Start();
  TaskReport report = job.Base(0);
  TaskReport waiting = report;
  waiting.wait.what = "pull";
  CHECK_FALSE(SixMinutesOf(job, [&](int) { return waiting; }));
  const auto trains_at_first = [&](int second) {
    report.totals.samples = second < 30 ? 10 : 20;
    return report;
  };
  const Instant begin = job.now;
  CheckHung(SixMinutesOf(job, trains_at_first), "has not moved on with its work for 5 min");
  CHECK(job.now == begin + absl::Seconds(31) + absl::Minutes(5));
}

TEST_CASE("Job: a task may export for as long as it gets on with that, and no longer",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp, /*workers=*/1);
  job.Start();
  job.Finish(0);
  job.Finish(0);
  REQUIRE(job.phase() == JobPhase::kExporting);
  TaskReport report = job.Base(0);
  const auto writing = [&](int second) {
    report.activity = {"bytes written", 1000 * second};
    return report;
  };
  CHECK_FALSE(SixMinutesOf(job, writing));
  CHECK(job.View().detail == "writes the model to /out (360000 bytes written)");
  CHECK(job.View().tasks[0].state == "exporting");
  CHECK(job.View().tasks[0].activity.done == 360'000);
  CheckHung(SixMinutesOf(job, [&](int) { return report; }),
            "its work for 5 min 0 s (360000 bytes written), and names nothing");
  // Another incarnation starts the export again.
  job.Place(0);
  job.Hello(0);
  CHECK(job.Of(0).phase == TaskPhase::kExport);
  CHECK(job.View().detail == "writes the model to /out");
}

TEST_CASE("Job: a task gets no work, and the job does not begin, before it has prepared",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.ApplyAll();
  TaskReport report = job.Base(0);
  report.preparing = true;
  report.idle = true;  // This has no meaning, because the task has no work yet.
  const auto reading = [&](int second) {
    report.activity = {second < 200 ? "examples read" : "examples counted", second % 200};
    return report;
  };
  CHECK_FALSE(SixMinutesOf(job, reading));
  CHECK(job.phase() == JobPhase::kStarting);
  CHECK(job.View().detail ==
        "waits for its tasks to start: 1 of 2 tasks are ready; task 0 on worker-0 prepares "
        "(160 examples counted)");
  CHECK(job.View().tasks[0].state == "preparing");
  SECTION("it is ready") {
    job.Hello(0);
    CHECK(job.phase() == JobPhase::kTraining);
    REQUIRE_OK(job.Send(report));  // A late report changes nothing.
    job.ApplyAll();
    CHECK(job.Of(0).slots.size() == 2);
  }
  SECTION("it hangs") {
    CheckHung(SixMinutesOf(job, [&](int) { return report; }), "its preparation for 5 min");
    CHECK(job.phase() == JobPhase::kTraining);  // The other task goes on.
    job.ApplyAll();
    CHECK(job.Of(1).slots.size() == 4);
  }
  SECTION("it falls silent") {
    job.now = job.now + absl::Seconds(3);
    CHECK(job.run->parts().tasks.Expired(job.now).size() == 2);
    job.run->ExpireTasks([](const NodeId& node) { return node == "worker-1"; }, job.now,
                         job.events);
    CHECK(job.Seen<TaskDied>()[0].failure ==
          Failure{FailureReason::kNoHeartbeat, "no report for 3.0 s"});
  }
}

TEST_CASE("Job: the others train while a task that comes back prepares", "[scheduler][core]") {
  const ConsistencyMode mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp);
  JobFixture job(mode);
  job.Start();
  job.Exit(1, 3);
  job.Place(1);
  TaskReport report = job.Base(1);
  report.preparing = true;
  REQUIRE_OK(job.Send(report));
  job.ApplyAll();
  CHECK(job.Of(1).phase == TaskPhase::kIdle);
  CHECK_FALSE(job.run->parts().members.membership().members[1].active);
  CHECK(job.Of(0).phase == TaskPhase::kTrain);
  job.Hello(1);
  job.ApplyAll();
  CHECK(job.Of(1).phase == TaskPhase::kTrain);
}

// Lets server-2 report its initialized shards each second for three minutes. Returns the job's
// detail afterwards.
std::string DetailWhile(JobFixture& job, const std::function<int(int)>& made_at) {
  job.Apply("server-1");
  for (int second = 0; second < 180; ++second) {
    TableReport report{"job-1", Generation(0), Generation(0), {}};
    report.making = Making{.made = made_at(second), .total = 8};
    report.making->progress = 100 + static_cast<uint64_t>(report.making->made);
    job.run->OnTableReport("server-2", report, job.now, job.events);
    job.Advance(absl::Seconds(1));
    if (job.run->parts().ended()) return job.View().failure.message;
  }
  return job.View().detail;
}

TEST_CASE("Job: a server may make its shards for as long as it gets on with it, and no longer",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  const Instant begin = job.now;
  SECTION("one in 50 seconds") {
    CHECK(DetailWhile(job, [](int second) { return second / 50; }) ==
          "waits for server-2 to make its tables (3 of 8 shards are made)");
    job.ApplyAll();
    CHECK(job.phase() == JobPhase::kStarting);
  }
  SECTION("the second one never") {
    CHECK(DetailWhile(job, [](int second) { return second < 50 ? 0 : 1; }) ==
          "server-2 has not applied what the job asks of it for 1 min 0 s (1 of 8 shards are "
          "made)");
    CHECK(job.run->parts().state == JobState::kFailed);
    CHECK(job.View().failure.reason == FailureReason::kHang);
    CHECK(job.now == begin + absl::Seconds(110));
  }
}

TEST_CASE("Job: a task that fails as another incarnation may not is started again (issue 20)",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  const auto reason = GENERATE(FailureReason::kInternal, FailureReason::kHang);
  for (int crash = 0; crash <= job.plan.max_restarts; ++crash) {
    REQUIRE_FALSE(job.run->parts().ended());
    if (crash > 0) job.Place(1);
    TaskReport report = job.Base(1);
    report.failure = {reason, absl::StrCat("failure ", crash)};
    REQUIRE_OK(job.Send(report));
    CHECK(job.Seen<TaskDied>().back().counted);
  }
  CHECK(job.run->parts().state == JobState::kFailed);
  CHECK(job.View().failure.reason == reason);
  CHECK_THAT(job.View().failure.message, Catch::Contains("failure 0 (the first of 2 crashes"));
}

TEST_CASE("Job: a program at its own pace may think for as long as it likes", "[scheduler][core]") {
  JobFixture job = JobFixture::AtOwnPace();
  job.Start();
  REQUIRE(job.Of(0).samples.size() == 1);
  TaskReport report = job.Base(0);
  CHECK_FALSE(SixMinutesOf(job, [&](int) { return report; }));
  report.idle = true;
  CheckHung(SixMinutesOf(job, [&](int) { return report; }), "says that it is idle");
}

}  // namespace
}  // namespace capstan::scheduler::job_hang_test
