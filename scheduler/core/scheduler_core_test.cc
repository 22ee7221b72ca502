#include "scheduler/core/scheduler_core.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/replies_of.h"

namespace capstan::scheduler::scheduler_core_test {
namespace {

using testing::Plan;
using testing::RepliesOf;

struct Desk {
  SchedulerCore core{{}};
  Instant now = Instant::FromOrigin(absl::Seconds(1));
  Actions actions;
  std::vector<Registration> servers;

  Registration Join(const std::string& name, Role role, int capacity = 1,
                    const Devices& devices = {}) {
    NodeInfo info{.name = name, .role = role, .address = name + ":1", .task_capacity = capacity};
    info.devices = devices;
    info.identity = name;  // A node that joins again succeeds itself.
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
    const std::vector<NodeReply> replies = RepliesOf<NodeReply>(actions);
    actions.replies.clear();
    return replies;
  }
  // Lets `step` pass with a punctual timer.
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
  // The waiting calls arrive in any order, here the cut call first.
  desk.core.OnSyncBroken("server-1", server.incarnation, desk.now, desk.actions);
  desk.Stall(absl::ZeroDuration());
  desk.Pass(absl::Seconds(2));
  CHECK(desk.core.Nodes()[0].alive);
  REQUIRE_OK(desk.Sync(server, 2, 1));
  // From then on leases count again.
  desk.Pass(absl::Seconds(4));
  CHECK_FALSE(desk.core.Nodes()[0].alive);
}

TEST_CASE("Scheduler: what it tells of jobs after a stall is durable first", "[scheduler][core]") {
  Desk desk;
  const Registration server = desk.Join("server-1", Role::kServer);
  desk.Join("worker-1", Role::kWorker, 2);
  REQUIRE_OK(desk.Sync(server, 1, 1));
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-1", 2), desk.now, desk.actions));
  const uint64_t before = desk.core.Job("job-1", desk.now).value().revision;
  REQUIRE_OK(desk.Sync(server, 2, 2));
  desk.Pass(absl::Milliseconds(10));  // The timer is due after 200 ms, to answer that call.
  desk.actions.changes = {};
  desk.Stall(absl::Milliseconds(790));  // Less than the progress interval after the last write.
  CHECK(desk.core.Job("job-1", desk.now).value().revision > before + 1000);
  CHECK(desk.actions.changes.jobs.contains("job-1"));
}

JobPlan PlanIn(const std::string& id, const std::string& folder) {
  JobPlan plan = Plan(id, 1);
  plan.folders = {folder, folder + "/checkpoints"};
  plan.checkpoint_folder = plan.folders.checkpoints;
  return plan;
}

TEST_CASE("Scheduler: a job is refused while another one writes into its folder",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  desk.Join("worker-1", Role::kWorker, 1);
  const auto submit = [&](const std::string& id, const std::string& folder) {
    return desk.core.SubmitJob(PlanIn(id, folder), desk.now, desk.actions);
  };
  REQUIRE_OK(submit("job-1", "/one"));
  REQUIRE_OK(submit("job-2", "/two"));
  REQUIRE(desk.core.Job("job-2", desk.now)->state == JobState::kPending);
  CHECK_STATUS(submit("job-3", "/one"), absl::StatusCode::kFailedPrecondition,
               "output.directory: /one is the output folder of job-1, which is RUNNING (");
  CHECK_STATUS(submit("job-3", "/two"), absl::StatusCode::kFailedPrecondition,
               "output.directory: /two is the output folder of job-2, which is PENDING (needs 1 "
               "worker, 0 are free of 1 alive); wait until it has ended, stop it, or name another "
               "folder");
  CHECK(absl::IsNotFound(desk.core.Job("job-3", desk.now).status()));

  REQUIRE_OK(desk.core.StopJob("job-2", desk.now, desk.actions));
  REQUIRE_OK(submit("job-3", "/two"));
  REQUIRE_OK(desk.core.StopJob("job-1", desk.now, desk.actions));
  CHECK_STATUS(submit("job-4", "/two"), absl::StatusCode::kFailedPrecondition, "of job-3");
  REQUIRE_OK(submit("job-4", "/one"));
}

TEST_CASE("Scheduler: a checkpoint that a job can go back to stays with its owner (issue 20)",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  desk.Join("worker-1", Role::kWorker, 1);
  REQUIRE_OK(desk.core.SubmitJob(PlanIn("owner", "/one"), desk.now, desk.actions));
  using Pins = std::vector<std::pair<CheckpointId, CheckpointId>>;
  const auto pinned = [&] { return desk.core.jobs().CheckpointsToRemove("owner").pinned; };
  CHECK(pinned().empty());
  const auto submit = [&](const std::string& id, const std::string& pinned_in) {
    const RestoreFrom from{.folder = "/one/checkpoints/checkpoint-5",
                           .at = {},
                           .id = CheckpointId(5),
                           .rests_on = CheckpointId(3),
                           .pinned_in = pinned_in};
    REQUIRE_OK(desk.core.SubmitJob(PlanIn(id, "/" + id), desk.now, desk.actions, from));
  };
  submit("waits", "/one/checkpoints");
  submit("elsewhere", "/two/checkpoints");
  REQUIRE(desk.core.Job("waits", desk.now)->state == JobState::kPending);
  CHECK(pinned() == Pins{{CheckpointId(3), CheckpointId(5)}});
  // The owner and the job in its folder have ended; the other job runs, and may go back.
  REQUIRE_OK(desk.core.StopJob("owner", desk.now, desk.actions));
  CHECK(pinned() == Pins{{CheckpointId(3), CheckpointId(5)}});
  REQUIRE_OK(desk.core.StopJob("waits", desk.now, desk.actions));
  CHECK(pinned().empty());
  CHECK(desk.core.jobs().CheckpointsToRemove("nobody").staying.empty());
}

TEST_CASE("Scheduler: a job numbers its checkpoints above all that one before it began there",
          "[scheduler][core]") {
  testing::FakeCluster cluster({.checkpoint_fails = 1});
  cluster.AddServer("server-1");
  cluster.AddWorker("worker-1", 1);
  const auto begun = [&] {
    const auto ended = [](const Event& event) {
      return std::holds_alternative<CheckpointEnded>(event);
    };
    const Events& events = cluster.events();
    const auto last = std::find_if(events.rbegin(), events.rend(), ended);
    return last == events.rend() ? CheckpointId(0) : std::get<CheckpointEnded>(*last).id;
  };
  // The checkpoint is not complete, and a server may still write it, so the folder does not show
  // it.
  REQUIRE_OK(cluster.Submit(PlanIn("job-1", "/out")));
  REQUIRE(
      cluster.RunUntil([&] { return cluster.View("job-1").samples_done > 0; }, absl::Minutes(1)));
  cluster.AskCheckpoint("job-1");
  REQUIRE(cluster.RunUntil([&] { return begun() == CheckpointId(1); }, absl::Minutes(1)));
  Actions stopped;
  REQUIRE_OK(cluster.core().StopJob("job-1", cluster.now(), stopped));

  REQUIRE_OK(cluster.Submit(PlanIn("job-2", "/out")));
  REQUIRE(
      cluster.RunUntil([&] { return cluster.View("job-2").samples_done > 0; }, absl::Minutes(1)));
  cluster.AskCheckpoint("job-2");
  CHECK(cluster.RunUntil([&] { return begun() == CheckpointId(2); }, absl::Minutes(1)));
  CHECK(cluster.error().empty());
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
  CHECK(desk.Take().size() == 1);  // Every ticket is answered, even that of a cut call.
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
    const Routing& routing = **desk.core.jobs().RoutingOf("job-1");
    return std::count_if(routing.shards.begin(), routing.shards.end(), [&](const ShardRoute& s) {
      return routing.servers[static_cast<size_t>(s.server)].node == name;
    });
  };
  // The first server's replicas are filled, so it can take over.
  const Routing routing = **desk.core.jobs().RoutingOf("job-1");
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
  CHECK(RepliesOf<JobReply>(desk.actions).size() == 1);
  REQUIRE_OK(watch(2, revision));
  CHECK(RepliesOf<JobReply>(desk.actions).size() == 1);
  desk.Join("server-1", Role::kServer);  // This changes the reason why the job waits.
  REQUIRE(RepliesOf<JobReply>(desk.actions).size() == 2);
  CHECK(RepliesOf<JobReply>(desk.actions)[1].ticket == Ticket(2));

  REQUIRE_OK(watch(3, desk.core.Job("job-1", desk.now)->revision));
  desk.Pass(absl::Seconds(10));
  CHECK(RepliesOf<JobReply>(desk.actions).size() >= 3);
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
  CHECK_STATUS(desk.core.jobs().RoutingOf("job-7"), absl::StatusCode::kNotFound, "job-7");
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-1", 2), desk.now, desk.actions));
  CHECK_STATUS(desk.core.jobs().RoutingOf("job-1"), absl::StatusCode::kFailedPrecondition,
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
  CHECK(RepliesOf<TaskReply>(desk.actions).empty());
  TaskReport failing = report_of(1);
  failing.failure = {FailureReason::kBadData, "train.gz is truncated"};
  REQUIRE_OK(desk.core.SyncTask(Ticket(2), failing, desk.now, desk.actions));
  REQUIRE(RepliesOf<TaskReply>(desk.actions).size() == 2);
  CHECK(RepliesOf<TaskReply>(desk.actions)[0].ticket == Ticket(2));
  CHECK(RepliesOf<TaskReply>(desk.actions)[0].status.ok());
  CHECK_STATUS(RepliesOf<TaskReply>(desk.actions)[1].status, absl::StatusCode::kAborted,
               "not wanted");
  CHECK(desk.core.Job("job-1", desk.now)->state == JobState::kFailed);
}

TEST_CASE("Scheduler: updates that a task reports are told before the end that it causes",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  desk.Join("worker-1", Role::kWorker, 1);
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-1", 1), desk.now, desk.actions));
  const JobView view = *desk.core.Job("job-1", desk.now);
  TaskReport report;
  report.task = {"job-1", Rank(0), view.tasks[0].incarnation};
  report.updates.push_back({.iteration = Iteration(5), .epoch = {}, .slot = {}, .positions = {}});
  TaskReport stale = report;
  stale.task.incarnation = Incarnation(view.tasks[0].incarnation.value() - 1);
  desk.actions.events.clear();
  CHECK_FALSE(desk.core.SyncTask(Ticket(1), stale, desk.now, desk.actions).ok());
  CHECK(desk.actions.events.empty());
  report.failure = {FailureReason::kBadData, "train.gz is truncated"};
  REQUIRE_OK(desk.core.SyncTask(Ticket(2), report, desk.now, desk.actions));
  REQUIRE(desk.actions.events.size() > 1);
  const auto* const recorded = std::get_if<UpdatesRecorded>(&desk.actions.events[0]);
  REQUIRE(recorded != nullptr);
  CHECK(recorded->task.rank == Rank(0));
  REQUIRE(recorded->updates.size() == 1);
  CHECK(recorded->updates[0].iteration == Iteration(5));
  CHECK(std::any_of(desk.actions.events.begin(), desk.actions.events.end(),
                    [](const Event& event) { return std::holds_alternative<JobEnded>(event); }));
}

JobPlan GpuPlan(const std::string& id, int gpus = 1) {
  JobPlan plan = Plan(id, 1);
  plan.device = {.kind = DeviceNeed::Kind::kGpu, .gpus = gpus};
  return plan;
}

Devices Gpus(int count) {
  Devices devices;
  for (int i = 0; i < count; ++i) devices.gpus.push_back({.index = i, .name = "fake"});
  return devices;
}
Devices OneGpu() { return Gpus(1); }

TEST_CASE("Scheduler: a job that needs a GPU waits for one, and its task is told which it has",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  Devices none;
  none.unusable = "no CUDA driver";
  desk.Join("worker-1", Role::kWorker, 4, none);
  REQUIRE_OK(desk.core.SubmitJob(GpuPlan("job-1"), desk.now, desk.actions));
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-2", 1), desk.now, desk.actions));
  JobView view = *desk.core.Job("job-1", desk.now);
  CHECK(view.state == JobState::kPending);
  CHECK(view.detail ==
        "needs 1 GPU; no live worker has one: worker-1: no CUDA driver; waits until more join, "
        "and jobs behind it go on");
  CHECK(desk.core.Job("job-2", desk.now)->state == JobState::kRunning);  // It passes the first job.

  const Registration worker = desk.Join("worker-2", Role::kWorker, 2, OneGpu());
  view = *desk.core.Job("job-1", desk.now);
  CHECK(view.state == JobState::kRunning);
  REQUIRE(view.tasks.size() == 1);
  CHECK(view.tasks[0].node == "worker-2");
  CHECK(view.tasks[0].gpus == std::vector<int>{0});
  CHECK(desk.core.Job("job-2", desk.now)->tasks[0].node == "worker-1");
  CHECK(desk.core.Nodes()[2].gpus_taken == std::vector<int>{0});
  desk.Take();
  REQUIRE_OK(desk.Sync(worker, 7, 0));
  const std::vector<NodeReply> replies = desk.Take();
  REQUIRE(replies.size() == 1);
  REQUIRE(replies[0].gpus.size() == 1);
  CHECK(replies[0].gpus[0].task == replies[0].tasks[0]);
  CHECK(replies[0].gpus[0].gpus == std::vector<int>{0});
}

TEST_CASE("Scheduler: a task whose GPU is lost starts again on another worker's",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  desk.Join("worker-1", Role::kWorker, 4, OneGpu());
  JobPlan plan = GpuPlan("job-1");
  plan.max_restarts = 1;
  REQUIRE_OK(desk.core.SubmitJob(plan, desk.now, desk.actions));
  const auto lose = [&](uint64_t ticket) {
    const TaskView task = desk.core.Job("job-1", desk.now)->tasks[0];
    TaskReport report;
    report.task = {"job-1", task.rank, task.incarnation};
    report.failure = {FailureReason::kDeviceLost, "GPU 0: it does not answer"};
    REQUIRE_OK(desk.core.SyncTask(Ticket(ticket), report, desk.now, desk.actions));
  };
  lose(1);
  REQUIRE(RepliesOf<TaskReply>(desk.actions).size() == 1);
  CHECK(RepliesOf<TaskReply>(desk.actions)[0].status.ok());
  CHECK(desk.core.Job("job-1", desk.now)->state == JobState::kRunning);
  CHECK(desk.core.Job("job-1", desk.now)->tasks[0].state == "dead");  // The slots are free, though.
  CHECK(desk.core.Nodes()[1].gpus_lost == std::vector<int>{0});

  desk.Join("worker-2", Role::kWorker, 1, OneGpu());
  CHECK(desk.core.Job("job-1", desk.now)->tasks[0].node == "worker-2");
  lose(2);  // This loss is one too many.
  const JobView view = *desk.core.Job("job-1", desk.now);
  CHECK(view.state == JobState::kFailed);
  CHECK(view.failure.reason == FailureReason::kDeviceLost);
  CHECK(view.failure.message ==
        "task 0 on worker-1: GPU 0: it does not answer (the first of 2 crashes; max_restarts is "
        "1)");
}

TEST_CASE("Scheduler: a task that names the GPU it has lost starts again with the others it had",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  const Registration worker = desk.Join("worker-1", Role::kWorker, 1, Gpus(3));
  JobPlan plan = GpuPlan("job-1", 2);
  plan.max_restarts = 1;
  REQUIRE_OK(desk.core.SubmitJob(plan, desk.now, desk.actions));
  const auto task = [&] { return desk.core.Job("job-1", desk.now)->tasks[0]; };
  CHECK(task().gpus == std::vector<int>{0, 1});
  TaskReport report;
  report.task = {"job-1", task().rank, task().incarnation};
  report.failure = {FailureReason::kDeviceLost, "GPU 1: it does not answer"};
  report.gpus_lost = {1};
  REQUIRE_OK(desk.core.SyncTask(Ticket(1), report, desk.now, desk.actions));
  CHECK(desk.core.Nodes()[1].gpus_lost == std::vector<int>{1});
  desk.Take();
  REQUIRE_OK(desk.Sync(worker, 7, 0));  // The worker learns that it must run no task.
  const std::vector<NodeReply> replies = desk.Take();
  REQUIRE(replies.size() == 1);
  REQUIRE_OK(desk.Sync(worker, 8, replies[0].generation.value()));  // It runs none now.
  CHECK(task().gpus == std::vector<int>{0, 2});
}

TEST_CASE("Scheduler: a running job that waits for a GPU keeps none from a plain slot",
          "[scheduler][core]") {
  Desk desk;
  desk.Join("server-1", Role::kServer);
  desk.Join("worker-1", Role::kWorker, 1, OneGpu());
  desk.Join("worker-2", Role::kWorker, 1);
  REQUIRE_OK(desk.core.SubmitJob(GpuPlan("job-1"), desk.now, desk.actions));
  REQUIRE_OK(desk.core.SubmitJob(Plan("job-2", 1), desk.now, desk.actions));
  CHECK(desk.core.Job("job-2", desk.now)->tasks[0].node == "worker-2");
  desk.Join("worker-1", Role::kWorker, 1);  // Its machine came back without the GPU.
  desk.Join("worker-2", Role::kWorker, 1);
  CHECK(desk.core.Job("job-1", desk.now)->tasks[0].state == "dead");
  CHECK(desk.core.Job("job-2", desk.now)->tasks[0].state == "starting");
}

}  // namespace
}  // namespace capstan::scheduler::scheduler_core_test
