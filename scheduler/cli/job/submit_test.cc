#include "scheduler/cli/job/submit.h"

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/cli/client/patience.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/operations/testing/fake_operations.h"
#include "scheduler/cli/testing/fake_jobs.h"

namespace capstan::cli::submit_test {
namespace {

constexpr char kJob[] = R"(model { zoo: "softmax_regression" }
data { format: IDX train { images: "none" labels: "none" } }
training { epochs: 1 batch_size: 8 }
optimizer { sgd {} learning_rate: 0.1 }
resources { workers: 1 }
)";

std::string WriteJob(const std::string& text, const std::string& name = "job.textproto") {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::ofstream(path) << text;
  return path;
}

JobSource Source(const std::string& path, std::vector<std::string> overrides = {}) {
  JobSource source;
  source.file = path;
  source.overrides = std::move(overrides);
  return source;
}

v1::JobStatus Job(v1::JobState state) {
  v1::JobStatus job;
  job.set_job_id("a-1");
  job.set_state(state);
  return job;
}

TEST_CASE("LoadCheckedJob: data files are read here, unless told otherwise", "[cli]") {
  const std::string path = WriteJob(kJob);
  CHECK_STATUS(LoadCheckedJob(Source(path), DataCheck::kDo), absl::StatusCode::kInvalidArgument,
               absl::StrCat(path, ":2:28: data.train.images: "));
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec spec,
                        LoadCheckedJob(Source(path, {"training.epochs=7"}), DataCheck::kSkip));
  CHECK(spec.training().epochs() == 7);
}

TEST_CASE("LoadCheckedJob: a base has the fields that the file lacks", "[cli]") {
  JobSource source = Source(WriteJob(kJob), {"resources.servers=3"});
  source.base = WriteJob("name: 'based' resources { workers: 7 replicas: 1 }", "base.textproto");
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec spec, LoadCheckedJob(source, DataCheck::kSkip));
  CHECK(spec.name() == "based");
  CHECK(spec.resources().workers() == 1);
  CHECK(spec.resources().replicas() == 1);
  CHECK(spec.resources().servers() == 3);
  source.base = WriteJob("naem: 'x'", "base.textproto");
  CHECK_STATUS(LoadCheckedJob(source, DataCheck::kSkip), absl::StatusCode::kInvalidArgument,
               absl::StrCat(source.base, ":1:1: "));
}

TEST_CASE("LoadCheckedJob: every error is a line", "[cli]") {
  const std::string path = WriteJob(kJob);
  const auto spec =
      LoadCheckedJob(Source(path, {"training.epochs=-1", "resources.workers=0"}), DataCheck::kSkip);
  CHECK(std::string(spec.status().message()) ==
        "--set training.epochs=-1: training.epochs: got -1, expected at least 1\n"
        "--set resources.workers=0: resources.workers: got 0, expected 1 to 4096");
  CHECK_STATUS(LoadCheckedJob(Source(path, {"epochs"}), DataCheck::kSkip),
               absl::StatusCode::kInvalidArgument, "--set epochs: expected FIELD=VALUE");
  CHECK_STATUS(LoadCheckedJob(Source(path + ".no"), DataCheck::kSkip), absl::StatusCode::kNotFound,
               "cannot read the job file");
}

TEST_CASE("SubmitPatiently: a scheduler that is away is asked again, for the same job (issue 20)",
          "[cli]") {
  const FakeOperations fake({.away = {0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}});
  SchedulerClient client({fake.address(), "test"});
  const Patience::Options hurried{.interval = absl::ZeroDuration()};
  v1::SubmitJobRequest asked;
  asked.set_restore_folder("/c/checkpoint-7");
  asked.set_replace_model(true);
  REQUIRE_OK_AND_ASSIGN(const v1::SubmitJobResponse first,
                        SubmitPatiently(client, asked, AfterSignal::kGoesOn, hurried));
  CHECK(first.job_id() == "a-2");
  std::vector<v1::SubmitJobRequest> requests = fake.submit_requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].submission_id() != 0);
  for (const v1::SubmitJobRequest& request : requests) {
    CHECK(request.submission_id() == requests[0].submission_id());
    CHECK(request.restore_folder() == "/c/checkpoint-7");
    CHECK(request.replace_model());
  }
  // The client gives up on a scheduler that stays away; the next submission has another id.
  const Patience::Options brief{.limit = absl::ZeroDuration(), .interval = absl::ZeroDuration()};
  CHECK_STATUS(SubmitPatiently(client, {}, AfterSignal::kGoesOn, brief),
               absl::StatusCode::kUnavailable, "nobody is there");
  requests = fake.submit_requests();
  REQUIRE(requests.size() == 4);
  CHECK(requests[3].submission_id() != requests[0].submission_id());
}

TEST_CASE("SubmitPatiently: a signal ends the wait for an answer at once", "[cli]") {
  const Interrupts interrupts;
  absl::Notification end;
  const FakeOperations fake({.on_submit = [&] {
    raise(SIGINT);
    end.WaitForNotification();
  }});
  SchedulerClient client({fake.address(), "test"});
  const absl::Status status = SubmitPatiently(client, {}, AfterSignal::kGoesOn).status();
  end.Notify();
  CHECK_STATUS(status, absl::StatusCode::kCancelled, "nobody has said whether the job was taken");
  CHECK(FailSubmission(status) == 130);
  CHECK_STATUS(SubmitPatiently(client, {}, AfterSignal::kStopJob), absl::StatusCode::kCancelled,
               "the job was not submitted");
  CHECK(fake.submit_requests().size() == 1);
}

TEST_CASE("SubmitPatiently: a job that is to be stopped after a signal becomes known", "[cli]") {
  const Interrupts interrupts;
  absl::Notification end;
  std::atomic<int> calls = 0;
  const FakeOperations fake({.on_submit = [&] {
    if (calls++ > 0) return;
    raise(SIGINT);
    end.WaitForNotification();
  }});
  SchedulerClient client({fake.address(), "test"});
  const auto submitted = SubmitPatiently(client, {}, AfterSignal::kStopJob);
  end.Notify();
  REQUIRE_OK(submitted);
  CHECK(submitted->job_id() == "a-2");
  const std::vector<v1::SubmitJobRequest> requests = fake.submit_requests();
  REQUIRE(requests.size() == 2);
  CHECK(requests[1].submission_id() == requests[0].submission_id());
}

TEST_CASE("FollowToEnd: exits with the job's result", "[cli]") {
  for (const auto& [state, code] : {std::pair{v1::SUCCEEDED, kExitDone},
                                    {v1::FAILED, kExitFailed},
                                    {v1::STOPPED, kExitFailed}}) {
    const Interrupts interrupts;
    const FakeJobs jobs({Job(state)});
    SchedulerClient client({jobs.address(), "test"});
    CHECK(FollowToEnd(client, "a-1", OutputFormat::kTable, AfterSignal::kGoesOn) == code);
  }
}

TEST_CASE("FollowToEnd: after a signal the job goes on, or is stopped with its cluster", "[cli]") {
  const Interrupts interrupts;
  const FakeJobs jobs({Job(v1::RUNNING)}, [](int) { raise(SIGTERM); });
  SchedulerClient client({jobs.address(), "test"});
  CHECK(FollowToEnd(client, "a-1", OutputFormat::kTable, AfterSignal::kGoesOn) == 143);
  CHECK(jobs.stopped().empty());
  CHECK(FollowToEnd(client, "a-1", OutputFormat::kTable, AfterSignal::kStopJob) == 143);
  CHECK(jobs.stopped() == std::vector<std::string>{"a-1"});
}

}  // namespace
}  // namespace capstan::cli::submit_test
