// Tests the events of jobs, and the time for which ended jobs are kept.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/testing/fake_cluster.h"

namespace capstan::scheduler::scheduler_history_test {
namespace {

using testing::FakeCluster;
using testing::Plan;

int CountOf(const JobView& view, JobEventKind kind) {
  return static_cast<int>(std::count_if(view.events.begin(), view.events.end(),
                                        [kind](const JobEvent& e) { return e.kind == kind; }));
}

const JobEvent* Find(const JobView& view, JobEventKind kind) {
  const auto it = std::find_if(view.events.begin(), view.events.end(),
                               [kind](const JobEvent& event) { return event.kind == kind; });
  return it == view.events.end() ? nullptr : &*it;
}

TEST_CASE("Events: a lost server, its failover and its return are told, also after a restart",
          "[scheduler][core]") {
  FakeCluster cluster({});
  for (const char* name : {"server-1", "server-2", "server-3"}) cluster.AddServer(name);
  cluster.AddWorker("worker-1", 1);
  JobPlan plan = Plan("job-1", 1);
  plan.replicas = 1;
  REQUIRE_OK(cluster.Submit(plan));
  REQUIRE(cluster.RunUntil([&] { return cluster.View("job-1").samples_done > 100; },
                           absl::Seconds(30)));
  CHECK(cluster.View("job-1").events.empty());

  const Instant before = cluster.now();
  cluster.Kill("server-2");
  REQUIRE(cluster.RunUntil(
      [&] { return Find(cluster.View("job-1"), JobEventKind::kReplicated) != nullptr; },
      absl::Seconds(30)));
  const JobView view = cluster.View("job-1");
  const JobEvent* lost = Find(view, JobEventKind::kServerLost);
  REQUIRE(lost != nullptr);
  CHECK(lost->node == "server-2");
  CHECK(lost->first > before);
  CHECK(CountOf(view, JobEventKind::kFailover) >= 1);
  CHECK(CountOf(view, JobEventKind::kDegraded) >= 1);
  REQUIRE_FALSE(cluster.Ended("job-1"));

  cluster.KillScheduler(absl::Seconds(1), FakeCluster::Death::kBetweenSteps);
  cluster.AwaitScheduler();
  cluster.Run(absl::Seconds(2));
  const JobView after = cluster.View("job-1");
  REQUIRE(after.events.size() >= view.events.size());
  for (size_t i = 0; i < view.events.size(); ++i) {
    CHECK(after.events[i].text == view.events[i].text);
    CHECK(after.events[i].kind == view.events[i].kind);
  }
}

TEST_CASE("Events: each one makes a new revision, so that whoever watches sees it",
          "[scheduler][core]") {
  FakeCluster cluster({});
  cluster.AddServer("server-1");
  cluster.AddWorker("worker-1", 2);
  REQUIRE_OK(cluster.Submit(Plan("job-1", 2)));
  REQUIRE(cluster.RunUntil([&] { return cluster.View("job-1").samples_done > 100; },
                           absl::Seconds(30)));
  const uint64_t revision = cluster.View("job-1").revision;
  cluster.CrashTask("job-1", 1);
  REQUIRE(cluster.RunUntil(
      [&] { return Find(cluster.View("job-1"), JobEventKind::kTaskRestarted) != nullptr; },
      absl::Seconds(30)));
  const JobView view = cluster.View("job-1");
  CHECK(view.revision > revision);
  REQUIRE(Find(view, JobEventKind::kTaskDied) != nullptr);
  CHECK(Find(view, JobEventKind::kTaskDied)->node == "worker-1");
}

struct Ended {
  explicit Ended(const SchedulerCore::Options& options) : core(options) {}
  // Submits a job and stops it before it starts.
  void Job(const std::string& id) {
    REQUIRE_OK(core.SubmitJob(Plan(id, 1), now, actions));
    REQUIRE_OK(core.StopJob(id, now, actions).status());
  }
  SchedulerCore core;
  Instant now = Instant::FromOrigin(absl::Seconds(1));
  Actions actions;
};

TEST_CASE("Retention: ended jobs are forgotten by age, those that go on never",
          "[scheduler][core]") {
  SchedulerCore::Options options;
  options.ended_jobs_age = absl::Hours(1);
  Ended jobs(options);
  jobs.Job("a-1");
  REQUIRE_OK(jobs.core.SubmitJob(Plan("waits-2", 1), jobs.now, jobs.actions));
  jobs.now = jobs.now + absl::Minutes(30);
  jobs.core.Tick(jobs.now, jobs.actions);
  jobs.Job("b-3");
  CHECK(jobs.core.NextDeadline() <= jobs.now + absl::Minutes(30));
  jobs.now = jobs.now + absl::Minutes(30);
  jobs.core.Tick(jobs.now, jobs.actions);
  CHECK(jobs.core.jobs().Find("a-1") == nullptr);
  CHECK(jobs.actions.changes.forgotten == std::set<JobId>{"a-1"});
  CHECK(jobs.core.jobs().Find("waits-2") != nullptr);
  CHECK(jobs.core.jobs().Find("b-3") != nullptr);
}

TEST_CASE("Retention: at most so many ended jobs are kept, the newest", "[scheduler][core]") {
  SchedulerCore::Options options;
  options.ended_jobs_max = 2;
  Ended jobs(options);
  for (int i = 1; i <= 4; ++i) jobs.Job(absl::StrCat("a-", i));
  CHECK(jobs.core.jobs().Find("a-2") == nullptr);
  CHECK(jobs.core.jobs().Find("a-3") != nullptr);
  CHECK(jobs.core.jobs().Find("a-4") != nullptr);
}

TEST_CASE("Delete: an ended job is forgotten, whoever watches it is told; others are refused",
          "[scheduler][core]") {
  Ended jobs({});
  CHECK_STATUS(jobs.core.DeleteJob("a-1", jobs.now, jobs.actions), absl::StatusCode::kNotFound,
               "there is no job \"a-1\"");
  REQUIRE_OK(jobs.core.SubmitJob(Plan("a-1", 1), jobs.now, jobs.actions));
  CHECK_STATUS(jobs.core.DeleteJob("a-1", jobs.now, jobs.actions),
               absl::StatusCode::kFailedPrecondition, "a-1 is PENDING");
  REQUIRE_OK(jobs.core.StopJob("a-1", jobs.now, jobs.actions).status());
  REQUIRE_OK(jobs.core.DeleteJob("a-1", jobs.now, jobs.actions));
  CHECK(jobs.core.jobs().Find("a-1") == nullptr);
  CHECK(jobs.actions.changes.forgotten == std::set<JobId>{"a-1"});
  CHECK_STATUS(jobs.core.DeleteJob("a-1", jobs.now, jobs.actions), absl::StatusCode::kNotFound,
               "a-1");
}

TEST_CASE("Delete: a job that ended with live tasks is left by name", "[scheduler][core]") {
  FakeCluster cluster({});
  cluster.AddServer("server-1");
  cluster.AddWorker("worker-1", 1);
  REQUIRE_OK(cluster.Submit(Plan("job-1", 1)));
  REQUIRE(cluster.RunUntil([&] { return cluster.View("job-1").samples_done > 100; },
                           absl::Seconds(30)));
  Actions actions;
  CHECK_STATUS(cluster.core().DeleteJob("job-1", cluster.now(), actions),
               absl::StatusCode::kFailedPrecondition, "job-1 is RUNNING");
  REQUIRE_OK(cluster.core().StopJob("job-1", cluster.now(), actions).status());
  actions = {};
  REQUIRE_OK(cluster.core().DeleteJob("job-1", cluster.now(), actions));
  const bool left = std::any_of(actions.events.begin(), actions.events.end(),
                                [](const Event& e) { return std::holds_alternative<JobLeft>(e); });
  CHECK(left);
}

}  // namespace
}  // namespace capstan::scheduler::scheduler_history_test
