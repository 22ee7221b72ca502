#include "scheduler/cli/job/job_selection.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::cli::job_selection_test {
namespace {

using Ids = std::vector<std::string>;

v1::ListJobsResponse Jobs() {
  v1::ListJobsResponse jobs;
  const auto add = [&jobs](const char* id, v1::JobState state, int submitted, int ended) {
    v1::JobStatus& job = *jobs.add_jobs();
    job.set_job_id(id);
    job.set_state(state);
    job.set_submitted_unix_ms(submitted);
    job.set_ended_unix_ms(ended);
  };
  add("mlp-1", v1::FAILED, 1, 30);
  add("lenet-2", v1::SUCCEEDED, 2, 20);
  add("mlp-3", v1::RUNNING, 3, 0);
  add("a-4", v1::PENDING, 4, 0);
  return jobs;
}

Ids Selected(const JobSelection& selection) {
  v1::ListJobsResponse jobs = Jobs();
  REQUIRE_OK(SelectJobs(selection, jobs));
  Ids ids;
  for (const v1::JobStatus& job : jobs.jobs()) ids.push_back(job.job_id());
  return ids;
}

TEST_CASE("SelectJobs: by state, name and number", "[cli]") {
  CHECK(Selected({}) == Ids{"mlp-1", "lenet-2", "mlp-3", "a-4"});
  CHECK(Selected({.states = {"running", "PENDING"}}) == Ids{"mlp-3", "a-4"});
  CHECK(Selected({.name = "mlp"}) == Ids{"mlp-1", "mlp-3"});
  CHECK(Selected({.last = 3}) == Ids{"lenet-2", "mlp-3", "a-4"});
  CHECK(Selected({.states = {"STOPPED"}}).empty());
  CHECK(Selected({.last = 100}).size() == 4);
}

TEST_CASE("SelectJobs: by labels, all of which a job must have", "[cli]") {
  v1::ListJobsResponse jobs = Jobs();
  (*jobs.mutable_jobs(0)->mutable_labels())["team"] = "ads";
  (*jobs.mutable_jobs(0)->mutable_labels())["tier"] = "";
  (*jobs.mutable_jobs(1)->mutable_labels())["team"] = "search";
  const auto selected = [&jobs](const std::vector<std::string>& labels) {
    v1::ListJobsResponse some = jobs;
    REQUIRE_OK(SelectJobs({.labels = labels}, some));
    Ids ids;
    for (const v1::JobStatus& job : some.jobs()) ids.push_back(job.job_id());
    return ids;
  };
  CHECK(selected({"team"}) == Ids{"mlp-1", "lenet-2"});
  CHECK(selected({"team=ads"}) == Ids{"mlp-1"});
  CHECK(selected({"team=ads", "tier="}) == Ids{"mlp-1"});
  CHECK(selected({"team=ads", "tier=x"}).empty());
  CHECK(selected({"tea"}).empty());
}

TEST_CASE("SelectJobs: each order", "[cli]") {
  CHECK(Selected({.sort = "name"}) == Ids{"a-4", "lenet-2", "mlp-1", "mlp-3"});
  CHECK(Selected({.sort = "ended"}) == Ids{"lenet-2", "mlp-1", "mlp-3", "a-4"});
  CHECK(Selected({.sort = "state"}) == Ids{"a-4", "mlp-3", "lenet-2", "mlp-1"});
}

TEST_CASE("SelectJobs: what is not known is named", "[cli]") {
  v1::ListJobsResponse jobs = Jobs();
  CHECK_STATUS(SelectJobs({.states = {"done"}}, jobs), absl::StatusCode::kInvalidArgument,
               "--state: got \"done\", expected PENDING, RUNNING");
  CHECK_STATUS(SelectJobs({.sort = "size"}, jobs), absl::StatusCode::kInvalidArgument,
               "--sort: got \"size\", expected submitted");
  CHECK(jobs.jobs_size() == 4);
}

}  // namespace
}  // namespace capstan::cli::job_selection_test
