// Tests whole clusters, with FakeCluster.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/replies_of.h"

namespace capstan::scheduler {
namespace {

using testing::FakeCluster;
using testing::Plan;
using testing::RepliesOf;

struct Story {
  explicit Story(int servers, int workers, int capacity = 1) : cluster({.seed = 7}) {
    for (int i = 1; i <= servers; ++i) cluster.AddServer(absl::StrCat("server-", i));
    for (int i = 1; i <= workers; ++i) cluster.AddWorker(absl::StrCat("worker-", i), capacity);
    cluster.Run(absl::Milliseconds(50));
  }
  ~Story() { CHECK(cluster.error() == ""); }
  JobState State(const std::string& job) { return cluster.View(job).state; }
  bool Until(JobState state, const std::string& job, absl::Duration limit = absl::Minutes(2)) {
    return cluster.RunUntil([&] { return State(job) == state; }, limit);
  }
  bool UntilTraining(const std::string& job) {
    return cluster.RunUntil([&] { return cluster.View(job).samples_done > 300; }, absl::Minutes(1));
  }
  FakeCluster cluster;
};

TEST_CASE("Scheduler: a job runs from its submission to its end", "[scheduler][core]") {
  for (const ConsistencyMode mode :
       {ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp}) {
    Story story(2, 2);
    const JobPlan plan = Plan("job-1", 2, mode);
    REQUIRE_OK(story.cluster.Submit(plan));
    REQUIRE(story.Until(JobState::kSucceeded, "job-1"));
    const JobView view = story.cluster.View("job-1");
    CHECK(view.samples_done == 6000);
    CHECK(view.results.size() == 2);
    CHECK(view.results[1].test_accuracy == 1.0);
    CHECK(view.restarts == 0);
    story.cluster.CheckTrained(plan);
    story.cluster.Run(absl::Seconds(1));
    CHECK(story.cluster.RunningTasks().empty());
    for (const NodeView& node : story.cluster.core().Nodes()) {
      CHECK(node.tasks == 0);
      CHECK(node.shards == 0);
    }
  }
}

TEST_CASE(
    "Scheduler: a job that asks for more than there is waits, says why, and starts when it comes",
    "[scheduler][core]") {
  Story story(0, 2);
  REQUIRE_OK(story.cluster.Submit(Plan("job-1", 4)));
  REQUIRE_OK(story.cluster.Submit(Plan("job-2", 1)));
  CHECK(story.cluster.View("job-1").detail ==
        "needs 4 workers, 2 are free of 2 alive; needs 1 server, 0 are alive; waits until more "
        "join, and jobs behind it go on");
  SECTION("in its turn, if it fits as soon as the others do") {
    story.cluster.AddWorker("worker-3", 2);
    story.cluster.Run(absl::Seconds(1));
    story.cluster.AddServer("server-1");
    REQUIRE(story.Until(JobState::kRunning, "job-1", absl::Seconds(2)));
    CHECK(story.State("job-2") == JobState::kPending);
    REQUIRE(story.Until(JobState::kSucceeded, "job-2"));
    CHECK(story.State("job-1") == JobState::kSucceeded);
  }
  SECTION("behind those that fit before") {
    story.cluster.AddServer("server-1");
    REQUIRE(story.Until(JobState::kRunning, "job-2", absl::Seconds(2)));
    CHECK(story.State("job-1") == JobState::kPending);
    story.cluster.AddWorker("worker-3", 2);
    REQUIRE(story.Until(JobState::kSucceeded, "job-1"));
    CHECK(story.State("job-2") == JobState::kSucceeded);
  }
}

int64_t TimesLeft(const FakeCluster& cluster, const JobId& job) {
  return std::count_if(cluster.events().begin(), cluster.events().end(),
                       [&job](const Event& event) {
                         const auto* left = std::get_if<JobLeft>(&event);
                         return left != nullptr && left->job == job;
                       });
}

TEST_CASE("Scheduler: it is told when no process of an ended job is left", "[scheduler][core]") {
  Story story(1, 2);
  const auto left = [&] { return TimesLeft(story.cluster, "job-1"); };
  REQUIRE_OK(story.cluster.Submit(Plan("job-1", 2)));
  SECTION("of one that is stopped, when its tasks have been ended") {
    REQUIRE(story.UntilTraining("job-1"));
    Actions stopped;
    REQUIRE_OK(story.cluster.core().StopJob("job-1", story.cluster.now(), stopped));
    CHECK(std::get<JobEnded>(stopped.events.back()).job == "job-1");
    // FakeCluster checks that no task of the job runs at that time.
    REQUIRE(story.cluster.RunUntil([&] { return left() > 0; }, absl::Seconds(30)));
    story.cluster.Run(absl::Seconds(5));
    CHECK(left() == 1);
  }
  SECTION("again by the next scheduler, for the last one may have died of it") {
    REQUIRE(story.Until(JobState::kSucceeded, "job-1"));
    story.cluster.Run(absl::Seconds(1));
    CHECK(left() == 1);
    story.cluster.KillScheduler(absl::Seconds(1), FakeCluster::Death::kBetweenSteps);
    story.cluster.AwaitScheduler();
    CHECK(left() == 2);
  }
}

TEST_CASE("Scheduler: a crashed task is started again in the freed slot", "[scheduler][core]") {
  Story story(1, 2);
  const JobPlan plan = Plan("job-1", 2);
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  story.cluster.CrashTask("job-1", 0);
  REQUIRE(story.Until(JobState::kSucceeded, "job-1"));
  CHECK(story.cluster.View("job-1").restarts == 1);
  story.cluster.CheckTrained(plan);
}

TEST_CASE(
    "Scheduler: a killed worker daemon's task goes on nowhere, the job with the others, until a "
    "daemon comes",
    "[scheduler][core]") {
  Story story(2, 2);
  JobPlan plan = Plan("job-1", 2);
  plan.train_count = 200'000;
  plan.max_restarts = 0;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  story.cluster.Kill("worker-1");
  REQUIRE(story.cluster.RunUntil(
      [&] { return story.cluster.View("job-1").tasks[0].state == "dead"; }, absl::Seconds(10)));
  const int64_t before = story.cluster.View("job-1").samples_done;
  story.cluster.Run(absl::Seconds(2));
  CHECK(story.cluster.View("job-1").samples_done > before);
  story.cluster.AddWorker("worker-9", 1);
  REQUIRE(story.cluster.RunUntil(
      [&] { return story.cluster.View("job-1").tasks[0].node == "worker-9"; }, absl::Seconds(10)));
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a hung task is found by its lease and replaced", "[scheduler][core]") {
  Story story(1, 2);
  JobPlan plan = Plan("job-1", 2, ConsistencyMode::kBsp);
  plan.train_count = 200'000;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  story.cluster.HangTask("job-1", 1);
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  CHECK(story.cluster.View("job-1").restarts == 1);
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a killed server fails the jobs whose shards it held, and no other",
          "[scheduler][core]") {
  Story story(2, 2);
  JobPlan first = Plan("job-1", 1);
  JobPlan second = Plan("job-2", 1);
  first.servers = second.servers = 1;
  first.train_count = second.train_count = 100'000;
  REQUIRE_OK(story.cluster.Submit(first));
  REQUIRE_OK(story.cluster.Submit(second));
  REQUIRE(story.UntilTraining("job-2"));
  // The second job went to the server that held least.
  CHECK((*story.cluster.core().jobs().RoutingOf("job-2"))->servers[0].node == "server-2");
  story.cluster.Kill("server-1");
  REQUIRE(story.Until(JobState::kFailed, "job-1", absl::Seconds(10)));
  CHECK(story.cluster.View("job-1").failure.reason == FailureReason::kServerLost);
  CHECK_THAT(story.cluster.View("job-1").failure.message, Catch::StartsWith("server-1"));
  REQUIRE(story.Until(JobState::kSucceeded, "job-2", absl::Minutes(20)));
}

TEST_CASE("Scheduler: a job with replicas survives the death of one server after the other",
          "[scheduler][core]") {
  Story story(3, 2);
  JobPlan plan = Plan("job-1", 2, ConsistencyMode::kBsp);
  plan.train_count = 200'000;
  plan.replicas = 1;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  for (const char* server : {"server-1", "server-2", "server-3"}) {
    REQUIRE(
        story.cluster.RunUntil([&] { return story.cluster.CanLose(server); }, absl::Seconds(9)));
    story.cluster.Kill(server);
    REQUIRE(story.cluster.RunUntil(
        [&] {
          const auto& routing = **story.cluster.core().jobs().RoutingOf("job-1");
          return std::none_of(routing.servers.begin(), routing.servers.end(),
                              [&](const ServerRef& ref) { return ref.node == server; });
        },
        absl::Seconds(1)));  // Its connection broke, so the scheduler need not wait for the lease.
    story.cluster.AddServer(server);
    story.cluster.Run(absl::Seconds(1));
  }
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  CHECK(story.cluster.View("job-1").restarts == 0);
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: all servers of a job with a log die, and it goes on when they are back",
          "[scheduler][core]") {
  Story story(2, 1);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kSsp);
  plan.train_count = 100'000;
  plan.log = true;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  story.cluster.Kill("server-1");
  story.cluster.Kill("server-2");
  REQUIRE(story.cluster.RunUntil(
      [&] { return story.cluster.View("job-1").phase == JobPhase::kRecovering; },
      absl::Seconds(5)));
  story.cluster.Run(absl::Seconds(5));
  story.cluster.AddServer("server-2");
  story.cluster.Run(absl::Seconds(5));
  CHECK(story.cluster.View("job-1").phase == JobPhase::kRecovering);
  story.cluster.AddServer("server-1");
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a server whose log a job waits for is not said to be safe to stop",
          "[scheduler][core]") {
  Story story(2, 1);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kSsp);
  plan.train_count = 100'000;
  plan.log = true;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  story.cluster.Kill("server-1");
  story.cluster.Kill("server-2");
  REQUIRE(story.cluster.RunUntil(
      [&] { return story.cluster.View("job-1").phase == JobPhase::kRecovering; },
      absl::Seconds(5)));
  story.cluster.AddServer("server-2");
  story.cluster.Run(absl::Seconds(1));
  uint64_t ticket = 1'000'000;
  // One server is dead; one came back with the log and holds nothing yet.
  for (const char* name : {"server-1", "server-2"}) {
    Actions actions;
    REQUIRE_OK(story.cluster.core().DrainNode(Ticket(ticket++), name, false, absl::ZeroDuration(),
                                              story.cluster.now(), actions));
    REQUIRE(RepliesOf<DrainReply>(actions).size() == 1);
    CHECK_FALSE(RepliesOf<DrainReply>(actions)[0].safe_to_stop);
    CHECK(RepliesOf<DrainReply>(actions)[0].detail == "job-1 waits for the log on its disk");
    story.cluster.Drain(name, /*cancel=*/true);
  }
  story.cluster.AddServer("server-1");
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: one that is cut off for longer than the leases takes nobody for dead",
          "[scheduler][core]") {
  for (const ConsistencyMode mode :
       {ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp}) {
    Story story(2, 2);
    JobPlan plan = Plan("job-1", 2, mode);
    plan.train_count = 100'000;
    plan.replicas = 1;
    REQUIRE_OK(story.cluster.Submit(plan));
    REQUIRE(story.UntilTraining("job-1"));
    const size_t before = story.cluster.events().size();
    story.cluster.set_network({.lose_request = 1});
    story.cluster.Run(absl::Seconds(30));
    story.cluster.set_network({});
    REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
    CHECK(story.cluster.View("job-1").restarts == 0);
    story.cluster.CheckTrained(plan);
    const Events& events = story.cluster.events();
    for (size_t i = before; i < events.size(); ++i) {
      CHECK_FALSE(std::holds_alternative<NodeDied>(events[i]));
      CHECK_FALSE(std::holds_alternative<TaskPlaced>(events[i]));  // No task is placed again.
    }
  }
}

TEST_CASE("Scheduler: a task is not judged while its daemon is silent, too", "[scheduler][core]") {
  Story story(2, 2);
  JobPlan plan = Plan("job-1", 2, ConsistencyMode::kAsp);
  plan.train_count = 100'000;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  const auto deaths = [&] {
    std::vector<TaskDied> died;
    for (const Event& event : story.cluster.events()) {
      if (const auto* task = std::get_if<TaskDied>(&event)) died.push_back(*task);
    }
    return died;
  };
  story.cluster.HangTask("job-1", 0);
  story.cluster.Run(absl::Seconds(1));  // Its lease has 2 s left; those of the daemons are whole.
  SECTION("because the scheduler is cut off") {
    story.cluster.set_network({.lose_request = 1});
    story.cluster.Run(absl::Seconds(30));
  }
  SECTION("because the network was gone for less than a lease") {
    story.cluster.set_network({.lose_request = 1});
    story.cluster.Run(absl::Milliseconds(2500));
  }
  CHECK(deaths().empty());
  story.cluster.set_network({});
  story.cluster.Run(absl::Seconds(10));
  REQUIRE(deaths().size() == 1);
  CHECK(deaths()[0].task.rank == Rank(0));
  CHECK(deaths()[0].counted);
}

TEST_CASE("Scheduler: a server that leaves stays until its shards have moved",
          "[scheduler][core]") {
  Story story(2, 1);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kAsp);
  plan.train_count = 100'000;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  story.cluster.Leave("server-1");
  REQUIRE(story.cluster.RunUntil(
      [&] { return story.cluster.AliveNodes(Role::kServer).size() == 1; }, absl::Seconds(10)));
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  CHECK((*story.cluster.core().jobs().RoutingOf("job-1"))->servers.size() == 1);
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a drained worker's task moves; who asked hears when it is safe to stop",
          "[scheduler][core]") {
  Story story(1, 2);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kSsp);
  plan.train_count = 100'000;
  plan.max_restarts = 0;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  const NodeId first = story.cluster.View("job-1").tasks[0].node;
  SchedulerCore& core = story.cluster.core();
  Actions actions;
  REQUIRE_OK(core.DrainNode(Ticket(1'000'000), "server-1", false, absl::ZeroDuration(),
                            story.cluster.now(), actions));
  REQUIRE(RepliesOf<DrainReply>(actions).size() == 1);
  CHECK_FALSE(RepliesOf<DrainReply>(actions)[0].safe_to_stop);
  CHECK(RepliesOf<DrainReply>(actions)[0].shards > 0);
  CHECK(RepliesOf<DrainReply>(actions)[0].detail ==
        "there is no other server for its shards of job-1");
  CHECK_STATUS(core.DrainNode(Ticket(1), "server-9", false, absl::ZeroDuration(),
                              story.cluster.now(), actions),
               absl::StatusCode::kNotFound, "server-9");
  story.cluster.Drain("server-1", /*cancel=*/true);
  story.cluster.Drain(first, /*cancel=*/false);
  REQUIRE(story.cluster.RunUntil(
      [&] {
        const TaskView task = story.cluster.View("job-1").tasks[0];
        return task.node != first && task.state == "training";
      },
      absl::Seconds(10)));
  story.cluster.Run(absl::Seconds(1));  // Its old process ends.
  Actions later;
  REQUIRE_OK(core.DrainNode(Ticket(1'000'001), first, false, absl::Minutes(1), story.cluster.now(),
                            later));
  REQUIRE(RepliesOf<DrainReply>(later).size() == 1);
  CHECK(RepliesOf<DrainReply>(later)[0].safe_to_stop);
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a stopped job frees its slots for the next", "[scheduler][core]") {
  Story story(1, 1);
  REQUIRE_OK(story.cluster.Submit(Plan("job-1", 1)));
  REQUIRE_OK(story.cluster.Submit(Plan("job-2", 1)));
  REQUIRE_OK(story.cluster.Submit(Plan("job-3", 1)));
  REQUIRE(story.UntilTraining("job-1"));
  Actions actions;
  CHECK(*story.cluster.core().StopJob("job-2", story.cluster.now(), actions) == JobState::kStopped);
  CHECK(story.cluster.View("job-2").detail == "stopped before it started");
  Actions more;
  CHECK(*story.cluster.core().StopJob("job-1", story.cluster.now(), more) == JobState::kStopped);
  CHECK(*story.cluster.core().StopJob("job-1", story.cluster.now(), more) == JobState::kStopped);
  CHECK(story.State("job-1") == JobState::kStopped);
}

}  // namespace
}  // namespace capstan::scheduler
