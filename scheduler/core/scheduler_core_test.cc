#include "scheduler/core/scheduler_core.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/fake_cluster.h"

namespace capstan::scheduler {
namespace {

using testing::FakeCluster;

JobPlan Plan(const std::string& id, int workers, Mode mode = Mode::kSsp) {
  JobPlan plan;
  plan.id = id;
  plan.mode = mode;
  plan.workers = workers;
  plan.max_restarts = 3;
  plan.epochs = 2;
  plan.batch_size = 10;
  plan.slots = 4;
  plan.train_count = 3000;
  plan.test_count = 500;
  plan.table_elements = {431'080};
  plan.export_path = "/out";
  return plan;
}

// ---------------------------------------------------------------- calls by hand

struct Desk {
  SchedulerCore core{{}};
  Instant now = Instant::FromOrigin(absl::Seconds(1));
  Actions actions;
  std::vector<Registration> servers;

  Registration Join(const std::string& name, Role role, int capacity = 1) {
    const NodeInfo info{
        .name = name, .role = role, .address = name + ":1", .task_capacity = capacity};
    const Registration node = core.Register(info, now, actions).value();
    if (role == Role::kServer) servers.push_back(node);
    return node;
  }
  absl::Status Sync(const Registration& node, uint64_t ticket, uint64_t seen) {
    return core.SyncNode(
        Ticket(ticket),
        {.node = node.node, .incarnation = node.incarnation, .generation_seen = Generation(seen)},
        now, actions);
  }
  std::vector<NodeReply> Take() {
    std::vector<NodeReply> replies = std::move(actions.node_replies);
    actions.node_replies.clear();
    return replies;
  }
  // With a timer that is punctual.
  void Pass(absl::Duration step) {
    const Instant end = now + step;
    while (core.NextDeadline() < end) Stall(core.NextDeadline() - now);
    Stall(end - now);
  }
  void Stall(absl::Duration step) {
    now = now + step;
    core.Tick(now, actions);
  }
};

TEST_CASE(
    "Scheduler: a sync with news is answered at once, one without is held for the sync interval",
    "[scheduler][core]") {
  Desk desk;
  const Registration server = desk.Join("server-1", Role::kServer);
  REQUIRE_OK(desk.Sync(server, 1, 0));
  std::vector<NodeReply> replies = desk.Take();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].changed);
  CHECK(replies[0].generation == Generation(1));

  REQUIRE_OK(desk.Sync(server, 2, 1));
  CHECK(desk.Take().empty());
  CHECK(desk.core.NextDeadline() == desk.now + absl::Milliseconds(200));
  desk.Pass(absl::Milliseconds(199));
  CHECK(desk.Take().empty());
  desk.Pass(absl::Milliseconds(1));
  replies = desk.Take();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].ticket == Ticket(2));
  CHECK_FALSE(replies[0].changed);
}

TEST_CASE("Scheduler: a held sync is answered when there is news, or by the next one",
          "[scheduler][core]") {
  Desk desk;
  const Registration server = desk.Join("server-1", Role::kServer);
  const Registration worker = desk.Join("worker-1", Role::kWorker, 2);
  REQUIRE_OK(desk.Sync(server, 1, 1));
  REQUIRE_OK(desk.Sync(worker, 2, 1));
  REQUIRE_OK(desk.Sync(worker, 3, 1));
  std::vector<NodeReply> replies = desk.Take();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].ticket == Ticket(2));

  REQUIRE_OK(desk.core.SubmitJob(Plan("job-1", 2), desk.now, desk.actions));
  replies = desk.Take();
  REQUIRE(replies.size() == 2);
  CHECK(replies[0].tables.size() == 1);
  CHECK(replies[0].tables[0].routing->servers[0].node == "server-1");
  CHECK(replies[0].tables[0].membership.members.size() == 2);
  CHECK(replies[1].ticket == Ticket(3));
  CHECK(replies[1].tasks.size() == 2);
}

TEST_CASE("Scheduler: after it did not run for a while, nobody is dead because of that",
          "[scheduler][core]") {
  Desk desk;
  const Registration server = desk.Join("server-1", Role::kServer);
  REQUIRE_OK(desk.Sync(server, 1, 1));
  desk.now = desk.now + absl::Seconds(60);
  // What had gathered comes in any order, cut calls first.
  desk.core.OnSyncBroken("server-1", server.incarnation, desk.now, desk.actions);
  desk.Stall(absl::ZeroDuration());
  desk.Pass(absl::Seconds(2));
  CHECK(desk.core.Nodes()[0].alive);
  REQUIRE_OK(desk.Sync(server, 2, 1));
  // Then leases count again.
  desk.Pass(absl::Seconds(4));
  CHECK_FALSE(desk.core.Nodes()[0].alive);
}

TEST_CASE("Scheduler: a node whose lease ran out is told to register again", "[scheduler][core]") {
  Desk desk;
  const Registration server = desk.Join("server-1", Role::kServer);
  desk.Pass(absl::Seconds(3));
  CHECK_STATUS(desk.Sync(server, 1, 1), absl::StatusCode::kAborted, "register again");
  const Registration again = desk.Join("server-1", Role::kServer);
  CHECK(again.incarnation > server.incarnation);
  REQUIRE_OK(desk.Sync(again, 2, 0));
  CHECK_STATUS(desk.Sync({.node = "nobody", .incarnation = Incarnation(1)}, 3, 0),
               absl::StatusCode::kNotFound, "\"nobody\" is not registered");
}

TEST_CASE("Scheduler: a node whose held call is cut dies soon, one that called again lives",
          "[scheduler][core]") {
  Desk desk;
  const Registration server = desk.Join("server-1", Role::kServer);
  CHECK(server.read_lease == absl::Milliseconds(500));
  REQUIRE_OK(desk.Sync(server, 1, 1));
  desk.core.OnSyncBroken("server-1", server.incarnation, desk.now, desk.actions);
  CHECK(desk.Take().size() == 1);  // Every ticket is answered, also of a call that was cut.
  desk.Pass(absl::Milliseconds(400));
  REQUIRE_OK(desk.Sync(server, 2, 1));
  desk.Pass(absl::Milliseconds(150));
  REQUIRE(desk.core.Nodes()[0].alive);
  desk.core.OnSyncBroken("server-1", Incarnation(99), desk.now, desk.actions);
  desk.core.OnSyncBroken("server-1", server.incarnation, desk.now, desk.actions);
  desk.Pass(absl::Milliseconds(499));
  CHECK(desk.core.Nodes()[0].alive);
  desk.Pass(absl::Milliseconds(1));
  CHECK_FALSE(desk.core.Nodes()[0].alive);
}

TEST_CASE(
    "Scheduler: a process that replaces a live one gets the old one's shards only after the "
    "old one's read lease",
    "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  desk.Join("server-2", Role::kServer);
  desk.Join("worker-1", Role::kWorker);
  JobPlan plan = Plan("job-1", 1);
  plan.replicas = 1;
  REQUIRE_OK(desk.core.SubmitJob(plan, desk.now, desk.actions));
  const auto primaries = [&](const std::string& name) {
    const Routing& routing = **desk.core.RoutingOf("job-1");
    return std::count_if(routing.shards.begin(), routing.shards.end(), [&](const ShardRoute& s) {
      return routing.servers[static_cast<size_t>(s.server)].node == name;
    });
  };
  // The first server's replicas are filled, so it can take over.
  const Routing routing = **desk.core.RoutingOf("job-1");
  for (const Registration& server : {desk.servers[0], desk.servers[1]}) {
    NodeReport report{.node = server.node, .incarnation = server.incarnation};
    TableReport& table = report.tables.emplace_back();
    table.job = "job-1";
    table.routing = Generation(1);
    for (const ShardRoute& shard : routing.shards) {
      const ServerRef& to = routing.servers[static_cast<size_t>(shard.replicas[0].server)];
      table.replicas.push_back(
          {shard.key, Term(1), to.node, to.incarnation, ReplicaReport::State::kFilled});
    }
    REQUIRE_OK(
        desk.core.SyncNode(Ticket(server.incarnation.value()), report, desk.now, desk.actions));
  }
  desk.Pass(absl::Milliseconds(100));
  desk.Join("server-2", Role::kServer);
  CHECK(primaries("server-2") > 0);
  desk.Pass(absl::Milliseconds(399));
  CHECK(primaries("server-2") > 0);
  desk.Pass(absl::Milliseconds(1));
  CHECK(primaries("server-2") == 0);
  CHECK(desk.core.Job("job-1", desk.now)->state == JobState::kRunning);
}

TEST_CASE("Scheduler: a replaced process's held call is refused", "[scheduler][core]") {
  Desk desk;
  const Registration server = desk.Join("server-1", Role::kServer);
  REQUIRE_OK(desk.Sync(server, 1, 1));
  desk.Join("server-1", Role::kServer);
  const std::vector<NodeReply> replies = desk.Take();
  REQUIRE(replies.size() == 1);
  CHECK_STATUS(replies[0].status, absl::StatusCode::kAborted, "replaced by a new process");
}

TEST_CASE("Scheduler: whoever watches a job hears of its next change, or of the limit",
          "[scheduler][core]") {
  Desk desk;
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-1", 2), desk.now, desk.actions));
  const uint64_t revision = desk.core.Job("job-1", desk.now)->revision;
  const auto watch = [&](uint64_t ticket, uint64_t after) {
    return desk.core.WatchJob(Ticket(ticket), "job-1", after, absl::Seconds(10), desk.now,
                              desk.actions);
  };
  REQUIRE_OK(watch(1, 0));
  CHECK(desk.actions.job_replies.size() == 1);
  REQUIRE_OK(watch(2, revision));
  CHECK(desk.actions.job_replies.size() == 1);
  desk.Join("server-1", Role::kServer);  // Changes the reason why it waits.
  REQUIRE(desk.actions.job_replies.size() == 2);
  CHECK(desk.actions.job_replies[1].ticket == Ticket(2));

  REQUIRE_OK(watch(3, desk.core.Job("job-1", desk.now)->revision));
  desk.Pass(absl::Seconds(10));
  CHECK(desk.actions.job_replies.size() >= 3);
  CHECK_STATUS(
      desk.core.WatchJob(Ticket(4), "job-9", 0, absl::ZeroDuration(), desk.now, desk.actions),
      absl::StatusCode::kNotFound, "no job \"job-9\"");
}

TEST_CASE("Scheduler: unknown tasks and jobs are named in the error", "[scheduler][core]") {
  Desk desk;
  TaskReport report;
  report.task = {"job-7", Rank(0), Incarnation(1)};
  CHECK_STATUS(desk.core.SyncTask(Ticket(1), report, desk.now, desk.actions),
               absl::StatusCode::kNotFound, "job-7");
  CHECK_STATUS(desk.core.StopJob("job-7", desk.now, desk.actions), absl::StatusCode::kNotFound,
               "job-7");
  CHECK_STATUS(desk.core.RoutingOf("job-7"), absl::StatusCode::kNotFound, "job-7");
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-1", 2), desk.now, desk.actions));
  CHECK_STATUS(desk.core.RoutingOf("job-1"), absl::StatusCode::kFailedPrecondition,
               "not started yet");
}

TEST_CASE("Scheduler: a reported failure is acknowledged, the job's other tasks are refused",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  desk.Join("worker-1", Role::kWorker, 2);
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-1", 2), desk.now, desk.actions));
  const JobView view = *desk.core.Job("job-1", desk.now);
  const auto report_of = [&](size_t rank) {
    TaskReport report;
    report.task = {"job-1", view.tasks[rank].rank, view.tasks[rank].incarnation};
    report.assignment_seen = Generation(1);
    report.routing_seen = Generation(1);
    return report;
  };
  TaskReport idle = report_of(0);
  idle.idle = true;
  REQUIRE_OK(desk.core.SyncTask(Ticket(1), idle, desk.now, desk.actions));
  CHECK(desk.actions.task_replies.empty());
  TaskReport failing = report_of(1);
  failing.failure = {FailureReason::kBadData, "train.gz is truncated"};
  REQUIRE_OK(desk.core.SyncTask(Ticket(2), failing, desk.now, desk.actions));
  REQUIRE(desk.actions.task_replies.size() == 2);
  CHECK(desk.actions.task_replies[0].ticket == Ticket(2));
  CHECK(desk.actions.task_replies[0].status.ok());
  CHECK_STATUS(desk.actions.task_replies[1].status, absl::StatusCode::kAborted, "not wanted");
  CHECK(desk.core.Job("job-1", desk.now)->state == JobState::kFailed);
}

// ---------------------------------------------------------------- stories of a cluster

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
  for (const Mode mode : {Mode::kBsp, Mode::kSsp, Mode::kAsp}) {
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
        "needs 4 workers, 2 are free of 2 alive; needs 1 server, 0 are alive");
  CHECK(story.cluster.View("job-2").detail == "waits behind job-1");
  story.cluster.AddServer("server-1");
  story.cluster.AddWorker("worker-3", 2);
  REQUIRE(story.Until(JobState::kRunning, "job-1", absl::Seconds(2)));
  CHECK(story.State("job-2") == JobState::kPending);
  REQUIRE(story.Until(JobState::kSucceeded, "job-2"));
  CHECK(story.State("job-1") == JobState::kSucceeded);
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
  JobPlan plan = Plan("job-1", 2, Mode::kBsp);
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
  CHECK((*story.cluster.core().RoutingOf("job-2"))->servers[0].node == "server-2");
  story.cluster.Kill("server-1");
  REQUIRE(story.Until(JobState::kFailed, "job-1", absl::Seconds(10)));
  CHECK(story.cluster.View("job-1").failure.reason == FailureReason::kServerLost);
  CHECK_THAT(story.cluster.View("job-1").failure.message, Catch::StartsWith("server-1"));
  REQUIRE(story.Until(JobState::kSucceeded, "job-2", absl::Minutes(20)));
}

TEST_CASE("Scheduler: a job with replicas survives the death of one server after the other",
          "[scheduler][core]") {
  Story story(3, 2);
  JobPlan plan = Plan("job-1", 2, Mode::kBsp);
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
          const auto& routing = **story.cluster.core().RoutingOf("job-1");
          return std::none_of(routing.servers.begin(), routing.servers.end(),
                              [&](const ServerRef& ref) { return ref.node == server; });
        },
        absl::Seconds(1)));  // Its connection broke: no need to wait for the lease.
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
  JobPlan plan = Plan("job-1", 1, Mode::kSsp);
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

TEST_CASE("Scheduler: a server that leaves stays until its shards have moved",
          "[scheduler][core]") {
  Story story(2, 1);
  JobPlan plan = Plan("job-1", 1, Mode::kAsp);
  plan.train_count = 100'000;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  story.cluster.Leave("server-1");
  REQUIRE(story.cluster.RunUntil(
      [&] { return story.cluster.AliveNodes(Role::kServer).size() == 1; }, absl::Seconds(10)));
  REQUIRE(story.Until(JobState::kSucceeded, "job-1", absl::Minutes(20)));
  CHECK((*story.cluster.core().RoutingOf("job-1"))->servers.size() == 1);
  story.cluster.CheckTrained(plan);
}

TEST_CASE("Scheduler: a drained worker's task moves; who asked hears when it is safe to stop",
          "[scheduler][core]") {
  Story story(1, 2);
  JobPlan plan = Plan("job-1", 1, Mode::kSsp);
  plan.train_count = 100'000;
  plan.max_restarts = 0;
  REQUIRE_OK(story.cluster.Submit(plan));
  REQUIRE(story.UntilTraining("job-1"));
  const NodeId first = story.cluster.View("job-1").tasks[0].node;
  SchedulerCore& core = story.cluster.core();
  Actions actions;
  REQUIRE_OK(core.DrainNode(Ticket(1'000'000), "server-1", false, absl::ZeroDuration(),
                            story.cluster.now(), actions));
  REQUIRE(actions.drain_replies.size() == 1);
  CHECK_FALSE(actions.drain_replies[0].safe_to_stop);
  CHECK(actions.drain_replies[0].shards > 0);
  CHECK(actions.drain_replies[0].detail == "there is no other server for its shards of job-1");
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
  REQUIRE(later.drain_replies.size() == 1);
  CHECK(later.drain_replies[0].safe_to_stop);
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
