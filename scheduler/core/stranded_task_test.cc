// Tests a task that came back to a worker from which it cannot reach a server, because no other
// worker had a free slot (found by simulated seeds 3282890690, 3282891362 and 1198607112).
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/replies_of.h"

namespace capstan::scheduler::stranded_task_test {
namespace {

using testing::RepliesOf;

// Worker daemons that follow the scheduler. The test decides if their tasks reach the server.
class Fixture {
 public:
  Fixture() { AddServer("server-1"); }

  void AddServer(const std::string& name) {
    nodes_[name].incarnation = Register({.name = name, .address = "s:1"});
  }
  void AddWorker(const std::string& name, int capacity = 1) {
    nodes_[name].incarnation = Register(
        {.name = name, .role = Role::kWorker, .address = "w:1", .task_capacity = capacity});
  }
  void Submit(const JobPlan& plan) {
    Actions actions;
    REQUIRE_OK(core_.SubmitJob(plan, now_, actions));
  }
  void Submit(const std::string& job) { Submit(testing::Plan(job, 1)); }
  void Stop(const std::string& job) {
    Actions actions;
    REQUIRE_OK(core_.StopJob(job, now_, actions).status());
  }
  // Lets `time` pass. Meanwhile tasks of `job` on `cut_off` do not reach the server.
  void Run(absl::Duration time, const std::string& job, const NodeId& cut_off) {
    for (const Instant end = now_ + time; now_ < end; now_ = now_ + absl::Milliseconds(500)) {
      Actions actions;
      for (const auto& [name, node] : nodes_) SyncNode(name, node, actions);
      for (const auto& [name, node] : nodes_) {
        for (const TaskKey& task : node.tasks) {
          SyncTask(task, task.job == job && name == cut_off, actions);
        }
      }
      core_.Tick(now_, actions);
      for (const NodeReply& reply : RepliesOf<NodeReply>(actions)) Take(reply);
    }
  }
  std::string NodeOf(const std::string& job, size_t rank = 0) {
    return core_.Job(job, now_).value().tasks.at(rank).node;
  }
  bool IsStopped(const std::string& job, size_t rank) {
    return core_.Job(job, now_).value().tasks.at(rank).state == "stopped";
  }

 private:
  struct Daemon {
    Incarnation incarnation;
    Generation seen;
    std::vector<TaskKey> tasks;
  };

  Incarnation Register(const NodeInfo& info) {
    Actions actions;
    const auto registration = core_.Register(info, now_, actions);
    REQUIRE_OK(registration.status());
    return registration->incarnation;
  }
  void SyncNode(const NodeId& name, const Daemon& node, Actions& actions) {
    NodeReport report{.node = name, .incarnation = node.incarnation, .generation_seen = node.seen};
    for (const TaskKey& task : node.tasks) report.tasks.push_back({.task = task, .exit = {}});
    asked_[Ticket(++ticket_)] = name;
    REQUIRE_OK(core_.SyncNode(Ticket(ticket_), report, now_, actions));
  }
  void SyncTask(const TaskKey& task, bool cut_off, Actions& actions) {
    TaskReport report;
    report.task = task;
    report.wait = {.what = "pull", .peer = "server-1"};
    if (cut_off) report.wait.silent = {"server-1"};
    core_.SyncTask(Ticket(++ticket_), report, now_, actions).IgnoreError();
  }
  void Take(const NodeReply& reply) {
    if (!reply.changed) return;
    Daemon& node = nodes_.at(asked_.at(reply.ticket));
    node.seen = reply.generation;
    node.tasks = reply.tasks;
  }

  SchedulerCore core_{SchedulerCore::Options{}};
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  uint64_t ticket_ = 0;
  std::map<NodeId, Daemon> nodes_;
  std::map<Ticket, NodeId> asked_;
};

TEST_CASE("Scheduler: a task that cannot reach a server moves when another worker has room",
          "[scheduler][core]") {
  Fixture fixture;
  fixture.AddWorker("worker-1");
  fixture.Submit("job-1");
  REQUIRE(fixture.NodeOf("job-1") == "worker-1");
  SECTION("as another job ends there") {
    fixture.AddWorker("worker-2");
    fixture.Submit("job-2");
    REQUIRE(fixture.NodeOf("job-2") == "worker-2");
    fixture.Run(absl::Seconds(40), "job-1", "worker-1");
    CHECK(fixture.NodeOf("job-1") == "worker-1");  // There is no room elsewhere.
    fixture.Stop("job-2");
  }
  SECTION("as another worker comes") {
    fixture.Run(absl::Seconds(40), "job-1", "worker-1");
    CHECK(fixture.NodeOf("job-1") == "worker-1");
    fixture.AddWorker("worker-2");
  }
  fixture.Run(absl::Seconds(5), "job-1", "worker-1");
  CHECK(fixture.NodeOf("job-1") == "worker-2");
}

// The pushes of an incomplete iteration keep the shards on their server.
TEST_CASE("Scheduler: tasks of a BSP job leave a dead link though its shards were to leave it",
          "[scheduler][core]") {
  Fixture fixture;
  fixture.AddServer("server-2");
  fixture.AddWorker("worker-1", 2);
  fixture.Submit(testing::Plan("job-1", 2, ConsistencyMode::kBsp));
  fixture.AddWorker("worker-2");
  fixture.Submit("job-2");
  REQUIRE(fixture.NodeOf("job-2") == "worker-2");
  fixture.Run(absl::Seconds(40), "job-1", "worker-1");
  CHECK(fixture.NodeOf("job-1", 0) == "worker-1");  // There is no room elsewhere.
  CHECK(fixture.NodeOf("job-1", 1) == "worker-1");
  fixture.Stop("job-2");
  fixture.Run(absl::Seconds(5), "job-1", "worker-1");
  CHECK(fixture.NodeOf("job-1", 0) == "worker-2");
  fixture.Run(absl::Seconds(11), "job-1", "worker-1");
  CHECK(fixture.NodeOf("job-1", 0) == "worker-2");  // The task reaches the server, and goes on.
  CHECK(fixture.IsStopped("job-1", 1));
}

TEST_CASE("Scheduler: a task that reaches the server again stays where it is",
          "[scheduler][core]") {
  Fixture fixture;
  fixture.AddWorker("worker-1");
  fixture.Submit("job-1");
  fixture.Run(absl::Seconds(20), "job-1", "worker-1");
  fixture.Run(absl::Seconds(2), "job-1", "");
  fixture.AddWorker("worker-2");
  fixture.Run(absl::Seconds(20), "job-1", "");
  CHECK(fixture.NodeOf("job-1") == "worker-1");
}

}  // namespace
}  // namespace capstan::scheduler::stranded_task_test
