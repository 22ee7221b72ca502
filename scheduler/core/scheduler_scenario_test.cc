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

namespace capstan::scheduler::scheduler_scenario_test {
namespace {

using testing::FakeCluster;
using testing::Plan;
using testing::RepliesOf;

struct Fixture {
  explicit Fixture(int servers, int workers, int capacity = 1) : cluster({.seed = 7}) {
    for (int i = 1; i <= servers; ++i) cluster.AddServer(absl::StrCat("server-", i));
    for (int i = 1; i <= workers; ++i) cluster.AddWorker(absl::StrCat("worker-", i), capacity);
    cluster.Run(absl::Milliseconds(50));
  }
  ~Fixture() { CHECK(cluster.error() == ""); }
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
    Fixture fixture(2, 2);
    const JobPlan plan = Plan("job-1", 2, mode);
    REQUIRE_OK(fixture.cluster.Submit(plan));
    REQUIRE(fixture.Until(JobState::kSucceeded, "job-1"));
    const JobView view = fixture.cluster.View("job-1");
    CHECK(view.samples_done == 6000);
    CHECK(view.results.size() == 2);
    CHECK(view.results[1].test_accuracy == 1.0);
    CHECK(view.restarts == 0);
    fixture.cluster.CheckTrained(plan);
    fixture.cluster.Run(absl::Seconds(1));
    CHECK(fixture.cluster.RunningTasks().empty());
    for (const NodeView& node : fixture.cluster.core().Nodes()) {
      CHECK(node.tasks == 0);
      CHECK(node.shards == 0);
    }
  }
}

TEST_CASE(
    "Scheduler: a job that asks for more than there is waits, says why, and starts when it comes",
    "[scheduler][core]") {
  Fixture fixture(0, 2);
  REQUIRE_OK(fixture.cluster.Submit(Plan("job-1", 4)));
  REQUIRE_OK(fixture.cluster.Submit(Plan("job-2", 1)));
  CHECK(fixture.cluster.View("job-1").detail ==
        "needs 4 workers, 2 are free of 2 alive; needs 1 server, 0 are alive; waits until more "
        "join, and jobs behind it go on");
  SECTION("in its turn, if it fits as soon as the others do") {
    fixture.cluster.AddWorker("worker-3", 2);
    fixture.cluster.Run(absl::Seconds(1));
    fixture.cluster.AddServer("server-1");
    REQUIRE(fixture.Until(JobState::kRunning, "job-1", absl::Seconds(2)));
    CHECK(fixture.State("job-2") == JobState::kPending);
    REQUIRE(fixture.Until(JobState::kSucceeded, "job-2"));
    CHECK(fixture.State("job-1") == JobState::kSucceeded);
  }
  SECTION("behind those that fit before") {
    fixture.cluster.AddServer("server-1");
    REQUIRE(fixture.Until(JobState::kRunning, "job-2", absl::Seconds(2)));
    CHECK(fixture.State("job-1") == JobState::kPending);
    fixture.cluster.AddWorker("worker-3", 2);
    REQUIRE(fixture.Until(JobState::kSucceeded, "job-1"));
    CHECK(fixture.State("job-2") == JobState::kSucceeded);
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
  Fixture fixture(1, 2);
  const auto left = [&] { return TimesLeft(fixture.cluster, "job-1"); };
  REQUIRE_OK(fixture.cluster.Submit(Plan("job-1", 2)));
  SECTION("of one that is stopped, when its tasks have been ended") {
    REQUIRE(fixture.UntilTraining("job-1"));
    Actions stopped;
    REQUIRE_OK(fixture.cluster.core().StopJob("job-1", fixture.cluster.now(), stopped));
    CHECK(std::get<JobEnded>(stopped.events.back()).job == "job-1");
    // FakeCluster checks that no task of the job runs at that time.
    REQUIRE(fixture.cluster.RunUntil([&] { return left() > 0; }, absl::Seconds(30)));
    fixture.cluster.Run(absl::Seconds(5));
    CHECK(left() == 1);
  }
  SECTION("again by the next scheduler, for the last one may have died of it") {
    REQUIRE(fixture.Until(JobState::kSucceeded, "job-1"));
    fixture.cluster.Run(absl::Seconds(1));
    CHECK(left() == 1);
    fixture.cluster.KillScheduler(absl::Seconds(1), FakeCluster::Death::kBetweenSteps);
    fixture.cluster.AwaitScheduler();
    CHECK(left() == 2);
  }
}

TEST_CASE("Scheduler: a crashed task is started again in the freed slot", "[scheduler][core]") {
  Fixture fixture(1, 2);
  const JobPlan plan = Plan("job-1", 2);
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  fixture.cluster.CrashTask("job-1", 0);
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1"));
  CHECK(fixture.cluster.View("job-1").restarts == 1);
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE(
    "Scheduler: a killed worker daemon's task goes on nowhere, the job with the others, until a "
    "daemon comes",
    "[scheduler][core]") {
  Fixture fixture(2, 2);
  JobPlan plan = Plan("job-1", 2);
  plan.train_count = 200'000;
  plan.max_restarts = 0;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  fixture.cluster.Kill("worker-1");
  REQUIRE(fixture.cluster.RunUntil(
      [&] { return fixture.cluster.View("job-1").tasks[0].state == "dead"; }, absl::Seconds(10)));
  const int64_t before = fixture.cluster.View("job-1").samples_done;
  fixture.cluster.Run(absl::Seconds(2));
  CHECK(fixture.cluster.View("job-1").samples_done > before);
  fixture.cluster.AddWorker("worker-9", 1);
  REQUIRE(fixture.cluster.RunUntil(
      [&] { return fixture.cluster.View("job-1").tasks[0].node == "worker-9"; },
      absl::Seconds(10)));
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a rank at own pace that has finished leaves its slot to one without a place",
          "[scheduler][core]") {
  Fixture fixture(1, 2);
  JobPlan plan = Plan("job-1", 2, ConsistencyMode::kAsp);
  plan.own_pace = true;
  plan.epochs = 1;
  plan.batch_size = 1;
  plan.train_count = 2;
  plan.test_count = 0;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.cluster.RunUntil([&] { return fixture.cluster.RunningTasks().size() == 2; },
                                   absl::Minutes(1)));
  fixture.cluster.Kill("worker-2");  // For good, and before its task's run is done.
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1"));
  const JobView view = fixture.cluster.View("job-1");
  CHECK(view.samples_done == 2);
  CHECK(view.restarts == 1);
  CHECK(view.tasks[0].node == "worker-1");
  CHECK(view.tasks[1].node == "worker-1");
}

TEST_CASE("Scheduler: a hung task is found by its lease and replaced", "[scheduler][core]") {
  Fixture fixture(1, 2);
  JobPlan plan = Plan("job-1", 2, ConsistencyMode::kBsp);
  plan.train_count = 200'000;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  fixture.cluster.HangTask("job-1", 1);
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  CHECK(fixture.cluster.View("job-1").restarts == 1);
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a killed server fails the jobs whose shards it held, and no other",
          "[scheduler][core]") {
  Fixture fixture(2, 2);
  JobPlan first = Plan("job-1", 1);
  JobPlan second = Plan("job-2", 1);
  first.servers = second.servers = 1;
  first.train_count = second.train_count = 100'000;
  REQUIRE_OK(fixture.cluster.Submit(first));
  REQUIRE_OK(fixture.cluster.Submit(second));
  REQUIRE(fixture.UntilTraining("job-2"));
  // The second job went to the server that held least.
  CHECK((*fixture.cluster.core().jobs().RoutingOf("job-2"))->servers[0].node == "server-2");
  fixture.cluster.Kill("server-1");
  REQUIRE(fixture.Until(JobState::kFailed, "job-1", absl::Seconds(10)));
  CHECK(fixture.cluster.View("job-1").failure.reason == FailureReason::kServerLost);
  CHECK_THAT(fixture.cluster.View("job-1").failure.message, Catch::StartsWith("server-1"));
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-2", absl::Minutes(20)));
}

TEST_CASE("Scheduler: a job with replicas survives the death of one server after the other",
          "[scheduler][core]") {
  Fixture fixture(3, 2);
  JobPlan plan = Plan("job-1", 2, ConsistencyMode::kBsp);
  plan.train_count = 200'000;
  plan.replicas = 1;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  for (const char* server : {"server-1", "server-2", "server-3"}) {
    REQUIRE(fixture.cluster.RunUntil([&] { return fixture.cluster.CanLose(server); },
                                     absl::Seconds(9)));
    fixture.cluster.Kill(server);
    REQUIRE(fixture.cluster.RunUntil(
        [&] {
          const auto& routing = **fixture.cluster.core().jobs().RoutingOf("job-1");
          return std::none_of(routing.servers.begin(), routing.servers.end(),
                              [&](const ServerRef& ref) { return ref.node == server; });
        },
        absl::Seconds(1)));  // Its connection broke, so the scheduler need not wait for the lease.
    fixture.cluster.AddServer(server);
    fixture.cluster.Run(absl::Seconds(1));
  }
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  CHECK(fixture.cluster.View("job-1").restarts == 0);
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: all servers of a job with a log die, and it goes on when they are back",
          "[scheduler][core]") {
  Fixture fixture(2, 1);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kSsp);
  plan.train_count = 100'000;
  plan.log = true;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  fixture.cluster.Kill("server-1");
  fixture.cluster.Kill("server-2");
  REQUIRE(fixture.cluster.RunUntil(
      [&] { return fixture.cluster.View("job-1").phase == JobPhase::kRecovering; },
      absl::Seconds(5)));
  fixture.cluster.Run(absl::Seconds(5));
  fixture.cluster.AddServer("server-2");
  fixture.cluster.Run(absl::Seconds(5));
  CHECK(fixture.cluster.View("job-1").phase == JobPhase::kRecovering);
  fixture.cluster.AddServer("server-1");
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a server whose log a job waits for is not said to be safe to stop",
          "[scheduler][core]") {
  Fixture fixture(2, 1);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kSsp);
  plan.train_count = 100'000;
  plan.log = true;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  fixture.cluster.Kill("server-1");
  fixture.cluster.Kill("server-2");
  REQUIRE(fixture.cluster.RunUntil(
      [&] { return fixture.cluster.View("job-1").phase == JobPhase::kRecovering; },
      absl::Seconds(5)));
  fixture.cluster.AddServer("server-2");
  fixture.cluster.Run(absl::Seconds(1));
  uint64_t ticket = 1'000'000;
  // One server is dead; one came back with the log and holds nothing yet.
  for (const char* name : {"server-1", "server-2"}) {
    Actions actions;
    REQUIRE_OK(fixture.cluster.core().DrainNode(Ticket(ticket++), name, false, absl::ZeroDuration(),
                                                fixture.cluster.now(), actions));
    REQUIRE(RepliesOf<DrainReply>(actions).size() == 1);
    CHECK_FALSE(RepliesOf<DrainReply>(actions)[0].safe_to_stop);
    CHECK(RepliesOf<DrainReply>(actions)[0].detail == "job-1 waits for the log on its disk");
    fixture.cluster.Drain(name, /*cancel=*/true);
  }
  fixture.cluster.AddServer("server-1");
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: one that is cut off for longer than the leases takes nobody for dead",
          "[scheduler][core]") {
  for (const ConsistencyMode mode :
       {ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp}) {
    Fixture fixture(2, 2);
    JobPlan plan = Plan("job-1", 2, mode);
    plan.train_count = 100'000;
    plan.replicas = 1;
    REQUIRE_OK(fixture.cluster.Submit(plan));
    REQUIRE(fixture.UntilTraining("job-1"));
    const size_t before = fixture.cluster.events().size();
    fixture.cluster.set_network({.lose_request = 1});
    fixture.cluster.Run(absl::Seconds(30));
    fixture.cluster.set_network({});
    REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
    CHECK(fixture.cluster.View("job-1").restarts == 0);
    fixture.cluster.CheckTrained(plan);
    const Events& events = fixture.cluster.events();
    for (size_t i = before; i < events.size(); ++i) {
      CHECK_FALSE(std::holds_alternative<NodeDied>(events[i]));
      CHECK_FALSE(std::holds_alternative<TaskPlaced>(events[i]));  // No task is placed again.
    }
  }
}

TEST_CASE("Scheduler: a task is not judged while its daemon is silent, too", "[scheduler][core]") {
  Fixture fixture(2, 2);
  JobPlan plan = Plan("job-1", 2, ConsistencyMode::kAsp);
  plan.train_count = 100'000;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  const auto deaths = [&] {
    std::vector<TaskDied> died;
    for (const Event& event : fixture.cluster.events()) {
      if (const auto* task = std::get_if<TaskDied>(&event)) died.push_back(*task);
    }
    return died;
  };
  fixture.cluster.HangTask("job-1", 0);
  fixture.cluster.Run(absl::Seconds(1));  // Its lease has 2 s left; those of the daemons are whole.
  SECTION("because the scheduler is cut off") {
    fixture.cluster.set_network({.lose_request = 1});
    fixture.cluster.Run(absl::Seconds(30));
  }
  SECTION("because the network was gone for less than a lease") {
    fixture.cluster.set_network({.lose_request = 1});
    fixture.cluster.Run(absl::Milliseconds(2500));
  }
  CHECK(deaths().empty());
  fixture.cluster.set_network({});
  fixture.cluster.Run(absl::Seconds(10));
  REQUIRE(deaths().size() == 1);
  CHECK(deaths()[0].task.rank == Rank(0));
  CHECK(deaths()[0].counted);
}

TEST_CASE("Scheduler: a server that leaves stays until its shards have moved",
          "[scheduler][core]") {
  Fixture fixture(2, 1);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kAsp);
  plan.train_count = 100'000;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  fixture.cluster.Leave("server-1");
  REQUIRE(fixture.cluster.RunUntil(
      [&] { return fixture.cluster.AliveNodes(Role::kServer).size() == 1; }, absl::Seconds(10)));
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  CHECK((*fixture.cluster.core().jobs().RoutingOf("job-1"))->servers.size() == 1);
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a drained worker's task moves; who asked hears when it is safe to stop",
          "[scheduler][core]") {
  Fixture fixture(1, 2);
  JobPlan plan = Plan("job-1", 1, ConsistencyMode::kSsp);
  plan.train_count = 100'000;
  plan.max_restarts = 0;
  REQUIRE_OK(fixture.cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  const NodeId first = fixture.cluster.View("job-1").tasks[0].node;
  SchedulerCore& core = fixture.cluster.core();
  Actions actions;
  REQUIRE_OK(core.DrainNode(Ticket(1'000'000), "server-1", false, absl::ZeroDuration(),
                            fixture.cluster.now(), actions));
  REQUIRE(RepliesOf<DrainReply>(actions).size() == 1);
  CHECK_FALSE(RepliesOf<DrainReply>(actions)[0].safe_to_stop);
  CHECK(RepliesOf<DrainReply>(actions)[0].shards > 0);
  CHECK(RepliesOf<DrainReply>(actions)[0].detail ==
        "there is no other server for its shards of job-1");
  CHECK_STATUS(core.DrainNode(Ticket(1), "server-9", false, absl::ZeroDuration(),
                              fixture.cluster.now(), actions),
               absl::StatusCode::kNotFound, "server-9");
  fixture.cluster.Drain("server-1", /*cancel=*/true);
  fixture.cluster.Drain(first, /*cancel=*/false);
  REQUIRE(fixture.cluster.RunUntil(
      [&] {
        const TaskView task = fixture.cluster.View("job-1").tasks[0];
        return task.node != first && task.state == "training";
      },
      absl::Seconds(10)));
  fixture.cluster.Run(absl::Seconds(1));  // Its old process ends.
  Actions later;
  REQUIRE_OK(core.DrainNode(Ticket(1'000'001), first, false, absl::Minutes(1),
                            fixture.cluster.now(), later));
  REQUIRE(RepliesOf<DrainReply>(later).size() == 1);
  CHECK(RepliesOf<DrainReply>(later)[0].safe_to_stop);
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  fixture.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a stopped job frees its slots for the next", "[scheduler][core]") {
  Fixture fixture(1, 1);
  REQUIRE_OK(fixture.cluster.Submit(Plan("job-1", 1)));
  REQUIRE_OK(fixture.cluster.Submit(Plan("job-2", 1)));
  REQUIRE_OK(fixture.cluster.Submit(Plan("job-3", 1)));
  REQUIRE(fixture.UntilTraining("job-1"));
  Actions actions;
  CHECK(*fixture.cluster.core().StopJob("job-2", fixture.cluster.now(), actions) ==
        JobState::kStopped);
  CHECK(fixture.cluster.View("job-2").detail == "stopped before it started");
  Actions more;
  CHECK(*fixture.cluster.core().StopJob("job-1", fixture.cluster.now(), more) ==
        JobState::kStopped);
  CHECK(*fixture.cluster.core().StopJob("job-1", fixture.cluster.now(), more) ==
        JobState::kStopped);
  CHECK(fixture.State("job-1") == JobState::kStopped);
}

TEST_CASE("Scheduler: shards of a job with a plugin's rule go only to servers that have it",
          "[scheduler][core]") {
  const PluginRule rule{.name = "signum", .digest = "12ab"};
  Fixture fixture(0, 1);
  FakeCluster& cluster = fixture.cluster;
  cluster.AddServer("server-1", {rule});
  cluster.AddServer("server-2", {rule});
  cluster.AddServer("server-3");
  cluster.Run(absl::Seconds(1));
  JobPlan plan = Plan("job-1", 1);
  plan.train_count = 100'000;
  plan.replicas = 1;
  plan.plugin_rules = {rule};
  REQUIRE_OK(cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  const auto shards = [&cluster](const NodeId& server) {
    for (const NodeView& node : cluster.core().Nodes()) {
      if (node.id == server && node.alive) return node.shards;
    }
    return 0;
  };
  CHECK(shards("server-1") > 0);
  CHECK(shards("server-2") > 0);
  CHECK(shards("server-3") == 0);
  cluster.Kill("server-2");
  cluster.Drain("server-3", /*cancel=*/false);
  cluster.Run(absl::Seconds(10));
  cluster.Drain("server-3", /*cancel=*/true);
  cluster.AddServer("server-2", {{.name = "signum", .digest = "34cd"}});
  cluster.Run(absl::Seconds(10));
  CHECK(fixture.State("job-1") == JobState::kRunning);
  CHECK(shards("server-2") == 0);
  CHECK(shards("server-3") == 0);
  cluster.AddServer("server-4", {rule});
  REQUIRE(cluster.RunUntil([&] { return shards("server-4") > 0; }, absl::Seconds(30)));
  CHECK(fixture.State("job-1") == JobState::kRunning);
}

TEST_CASE("Scheduler: a server with the log but without the rule is named, and not used",
          "[scheduler][core]") {
  const PluginRule rule{.name = "signum", .digest = "12ab"};
  Fixture fixture(0, 1);
  FakeCluster& cluster = fixture.cluster;
  cluster.AddServer("server-1", {rule});
  cluster.Run(absl::Seconds(1));
  JobPlan plan = Plan("job-1", 1);
  plan.train_count = 100'000;
  plan.log = true;
  plan.plugin_rules = {rule};
  REQUIRE_OK(cluster.Submit(plan));
  REQUIRE(fixture.UntilTraining("job-1"));
  cluster.Kill("server-1");
  cluster.Run(absl::Seconds(5));
  cluster.AddServer("server-1");
  cluster.Run(absl::Seconds(5));
  CHECK(cluster.View("job-1").phase == JobPhase::kRecovering);
  const JobEvent last = cluster.View("job-1").events.back();
  CHECK(last.node == "server-1");
  CHECK(last.text ==
        "it holds nothing of the job any more: it has come back without update rule signum of the "
        "plugin with SHA-256 12ab");
  cluster.Kill("server-1");
  cluster.Run(absl::Seconds(5));
  cluster.AddServer("server-1", {rule});
  REQUIRE(fixture.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  cluster.CheckTrained(plan);
}

}  // namespace
}  // namespace capstan::scheduler::scheduler_scenario_test
