#include "scheduler/cli/job/follow.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <memory>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/testing/fake_jobs.h"

namespace capstan::cli::follow_test {
namespace {

v1::JobStatus Job(v1::JobState state, uint64_t revision) {
  v1::JobStatus job;
  job.set_job_id("a-1");
  job.set_state(state);
  job.set_revision(revision);
  return job;
}

SchedulerClient ClientOf(const FakeJobs& jobs) { return SchedulerClient({jobs.address(), "test"}); }

TEST_CASE("FollowJob: returns the ended job, asking only for what is newer", "[cli]") {
  const Interrupts interrupts;
  FakeJobs jobs({Job(v1::PENDING, 3), Job(v1::RUNNING, 8), Job(v1::SUCCEEDED, 9)});
  SchedulerClient client = ClientOf(jobs);
  REQUIRE_OK_AND_ASSIGN(const v1::JobStatus job, FollowJob(client, "a-1", {}));
  CHECK(job.state() == v1::SUCCEEDED);
  CHECK(JobExitCode(job) == kExitDone);
  const auto requests = jobs.requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].after_revision() == 0);
  CHECK(requests[1].after_revision() == 3);
  CHECK(requests[2].after_revision() == 8);
  CHECK(requests[0].wait_limit_ms() > 0);
}

TEST_CASE("FollowJob: a signal ends following, not the job", "[cli]") {
  const Interrupts interrupts;
  FakeJobs jobs({Job(v1::RUNNING, 1)}, [](int call) {
    if (call == 1) raise(SIGINT);
  });
  SchedulerClient client = ClientOf(jobs);
  CHECK_STATUS(FollowJob(client, "a-1", {}), absl::StatusCode::kCancelled, "stopped following a-1");
  CHECK(Interrupts::Signal() == SIGINT);
  CHECK(jobs.stopped().empty());
}

TEST_CASE("FollowJob: an unknown job is an error at once", "[cli]") {
  const Interrupts interrupts;
  FakeJobs jobs({Job(v1::RUNNING, 1)});
  SchedulerClient client = ClientOf(jobs);
  const auto job = FollowJob(client, "b-2", {});
  CHECK_STATUS(job, absl::StatusCode::kNotFound, "no job b-2");
  CHECK(ExitCodeOf(job.status()) == kExitUsage);
}

TEST_CASE("FollowJob: a scheduler that stays away is given up after the patience", "[cli]") {
  const Interrupts interrupts;
  std::string address;
  {
    const FakeJobs gone({Job(v1::RUNNING, 1)});
    address = gone.address();
  }
  SchedulerClient client({address, "test"});
  const auto job = FollowJob(client, "a-1", {.patience = absl::Milliseconds(10)});
  CHECK_STATUS(job, absl::StatusCode::kUnavailable, "(from test) cannot be reached");
  CHECK(ExitCodeOf(job.status()) == kExitTryAgain);
}

TEST_CASE("JobExitCode: only success is success", "[cli]") {
  CHECK(JobExitCode(Job(v1::SUCCEEDED, 1)) == 0);
  CHECK(JobExitCode(Job(v1::FAILED, 1)) == 1);
  CHECK(JobExitCode(Job(v1::STOPPED, 1)) == 1);
}

}  // namespace
}  // namespace capstan::cli::follow_test
