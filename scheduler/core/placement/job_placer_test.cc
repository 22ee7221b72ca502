#include "scheduler/core/placement/job_placer.h"

#include <catch2/catch.hpp>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::job_placer_test {
namespace {

// A placer with its jobs and nodes.
struct Places {
  void JoinServer(const NodeId& name, const std::vector<PluginRule>& rules = {}) {
    Register({.name = name, .role = Role::kServer, .plugin_rules = rules});
  }
  void JoinWorker(const NodeId& name, int capacity) {
    Register({.name = name, .role = Role::kWorker, .task_capacity = capacity});
    placer.slots().AddNode(name, capacity);
  }
  void Register(NodeInfo info) {
    info.address = info.name + ":1";
    REQUIRE_OK(membership.Register(info, incarnations.Take(), now, events).status());
  }
  void Submit(const JobId& id, int workers, int servers = 0,
              const std::vector<PluginRule>& rules = {}) {
    JobPlan plan;
    plan.plugin_rules = rules;
    plan.id = id;
    plan.workers = workers;
    plan.servers = servers;
    plan.train_count = 100;
    plan.tables = {100};
    REQUIRE_OK(placer.Enqueue(plan));
    jobs.Add(plan, now);
  }
  // One step of the core.
  void Settle() {
    placer.ReleaseSlots();
    placer.MoveTasks(now, events);
    placer.PlaceTasks(now, events);
    placer.StartJobs(now, events);
    placer.ExplainPending();
  }
  void Drain(const NodeId& worker) {
    REQUIRE_OK(membership.SetDraining(worker, true));
    placer.slots().CloseNode(worker);
  }
  const JobEntry& Job(const JobId& id) { return *jobs.Find(id); }
  NodeId PlaceOf(const JobId& job, int rank) {
    return jobs.RunOf(job)->parts().tasks.at(Rank(rank)).node;
  }
  std::vector<JobStarted> Started() const {
    std::vector<JobStarted> started;
    for (const Event& event : events) {
      if (const auto* each = std::get_if<JobStarted>(&event)) started.push_back(*each);
    }
    return started;
  }

  JobTable jobs;
  Membership membership{{}};
  IncarnationCounter incarnations{Incarnation(1)};
  JobPlacer placer{{}, &jobs, &membership, &incarnations};
  Instant now = Instant::FromOrigin(absl::Seconds(100));
  Events events;
};

TEST_CASE("Job placer: a job starts when its servers and slots are there, and has all its slots",
          "[scheduler][core]") {
  Places places;
  places.Submit("job-1", 2);
  places.JoinWorker("worker-1", 2);
  places.Settle();
  CHECK(places.Job("job-1").state() == JobState::kPending);
  CHECK(places.Job("job-1").why_pending ==
        "needs 1 server, 0 are alive; waits until more join, and jobs behind it "
        "go on");
  places.placer.TakeChanged();

  places.JoinServer("server-1");
  places.JoinServer("server-2");
  places.Settle();
  CHECK(places.Job("job-1").state() == JobState::kRunning);
  REQUIRE(places.Started().size() == 1);
  CHECK(places.Started()[0].servers == std::vector<NodeId>{"server-1", "server-2"});
  CHECK(places.placer.slots().Desired("worker-1").size() == 2);
  CHECK(places.placer.slots().free() == 0);
  CHECK(places.Job("job-1").run->parts().UnplacedRanks().empty());
  CHECK(places.placer.TakeChanged());
  CHECK_FALSE(places.placer.TakeChanged());
}

TEST_CASE("Job placer: older jobs come first, and running jobs before waiting ones",
          "[scheduler][core]") {
  Places places;
  places.JoinServer("server-1");
  places.JoinWorker("worker-1", 1);
  places.JoinWorker("worker-2", 1);
  places.Submit("job-1", 2);
  places.Submit("job-2", 1);
  places.Submit("job-3", 1);
  places.Settle();
  CHECK(places.Job("job-2").why_pending == "needs 1 worker, 0 are free of 2 alive");
  CHECK(places.Job("job-3").why_pending == "waits behind job-2");

  JobRun& first = *places.jobs.RunOf("job-1");
  places.placer.slots().RemoveNode("worker-2");
  first.OnNodesDied({{"worker-2", "no sync for 3s", places.now}}, places.now, places.events);
  REQUIRE(first.parts().UnplacedRanks().size() == 1);
  places.JoinWorker("worker-3", 1);
  places.Settle();
  CHECK(first.parts().UnplacedRanks().empty());
  CHECK(places.Job("job-2").state() == JobState::kPending);

  places.JoinWorker("worker-4", 1);
  places.Settle();
  CHECK(places.Job("job-2").state() == JobState::kRunning);
  CHECK(places.Job("job-3").state() == JobState::kPending);
}

TEST_CASE("Job placer: the slots of an ended job go to the next one", "[scheduler][core]") {
  Places places;
  places.JoinServer("server-1");
  places.JoinWorker("worker-1", 1);
  places.Submit("job-1", 1);
  places.Submit("job-2", 1);
  places.Settle();
  REQUIRE(places.Job("job-1").run != nullptr);
  places.Job("job-1").run->End(JobState::kStopped, {}, places.now, places.events);
  places.jobs.NoteEnded(places.Job("job-1"));
  places.Settle();
  // The process of the first may still run.
  CHECK(places.Job("job-2").state() == JobState::kPending);
  places.placer.slots().Report("worker-1", {}, /*current=*/true);
  places.Settle();
  CHECK(places.Job("job-2").state() == JobState::kRunning);
  CHECK(places.PlaceOf("job-2", 0) == "worker-1");
}

TEST_CASE("Job placer: a task leaves a drained worker once there is another place",
          "[scheduler][core]") {
  Places places;
  places.JoinServer("server-1");
  places.JoinWorker("worker-1", 1);
  places.Submit("job-1", 1);
  places.Settle();
  places.Drain("worker-1");
  places.Settle();
  // A job's only task is not stopped for nothing.
  CHECK(places.placer.slots().Desired("worker-1").size() == 1);
  places.JoinWorker("worker-2", 1);
  places.Settle();
  CHECK(places.PlaceOf("job-1", 0) == "worker-2");
  CHECK(places.placer.slots().Desired("worker-1").empty());
}

TEST_CASE("Job placer: a job that wants fewer servers gets those with the fewest shards",
          "[scheduler][core]") {
  Places places;
  places.JoinServer("server-1");
  places.JoinServer("server-2");
  places.JoinWorker("worker-1", 2);
  places.Submit("job-1", 1, /*servers=*/1);
  places.Submit("job-2", 1, /*servers=*/1);
  places.Settle();
  REQUIRE(places.Started().size() == 2);
  CHECK(places.Started()[0].servers == std::vector<NodeId>{"server-1"});
  CHECK(places.Started()[1].servers == std::vector<NodeId>{"server-2"});
}

// Makes a membership what it is after a restart: the store does not keep which nodes are heard.
struct Unheard {
  template <typename Nodes>
  void operator()(Nodes& nodes) const {
    for (auto& [id, node] : nodes) node.heard = false;
  }
};

TEST_CASE("Job placer: after a restart no job starts or is too large while nodes may come back",
          "[scheduler][core]") {
  Places places;
  places.JoinServer("server-1");
  places.JoinServer("server-2");
  places.JoinWorker("worker-1", 1);
  Unheard restart;
  places.membership.serialize(restart);
  places.membership.Restored(places.now, /*rejoin=*/absl::Seconds(2));
  places.Submit("small-1", 1);
  places.Submit("large-2", 9);
  places.Settle();
  CHECK(places.Job("small-1").state() == JobState::kPending);
  CHECK(places.placer.WhyTooSmall("large-2", places.now).empty());

  for (const char* name : {"server-1", "worker-1"}) {
    const Incarnation incarnation = places.membership.Find(name)->incarnation;
    REQUIRE_OK(places.membership.Renew(name, incarnation, /*leaving=*/false, places.now));
  }
  places.Settle();
  CHECK(places.Job("small-1").state() == JobState::kPending);  // server-2 may come back.
  places.now = places.now + absl::Seconds(2);
  places.Settle();
  CHECK(places.Job("small-1").state() == JobState::kRunning);
  CHECK_FALSE(places.placer.WhyTooSmall("large-2", places.now).empty());
}

TEST_CASE("Job placer: a pending job's reason changes its revision only when it changes",
          "[scheduler][core]") {
  Places places;
  places.Submit("job-1", 3);
  places.Settle();
  const uint64_t revision = places.Job("job-1").revision();
  places.Settle();
  CHECK(places.Job("job-1").revision() == revision);
  CHECK(places.placer.WhyTooSmall("job-1", places.now) == places.Job("job-1").why_pending);
  places.JoinServer("server-1");
  places.JoinWorker("worker-1", 1);
  places.Settle();
  CHECK(places.Job("job-1").revision() == revision + 1);
  CHECK(places.Job("job-1").why_pending ==
        "needs 3 workers, 1 is free of 1 alive; waits until more join, and jobs behind it go on");
  places.JoinServer("server-2");
  places.Settle();
  CHECK(places.Job("job-1").revision() == revision + 1);  // Another server does not help.
  places.placer.Dequeue("job-1");
  CHECK(places.placer.WhyTooSmall("job-1", places.now).empty());
}

TEST_CASE("Job placer: only servers with the job's update rules get its shards",
          "[scheduler][core]") {
  const PluginRule rule{.name = "signum", .digest = "12ab"};
  const PluginRule of_other_file{.name = "signum", .digest = "34cd"};
  Places places;
  places.JoinWorker("worker-1", 4);
  places.JoinServer("server-1");
  places.JoinServer("server-2", {rule});
  places.JoinServer("server-3", {of_other_file});
  places.JoinServer("server-4", {of_other_file, rule});
  places.Submit("all-1", 1, /*servers=*/0, {rule});
  places.Submit("one-2", 1, /*servers=*/1, {of_other_file});
  places.Submit("many-3", 1, /*servers=*/3, {rule});
  places.Settle();
  const std::vector<JobStarted> started = places.Started();
  REQUIRE(started.size() == 2);
  CHECK(started[0].servers == std::vector<NodeId>{"server-2", "server-4"});
  CHECK(started[1].servers == std::vector<NodeId>{"server-3"});
  CHECK(places.Job("many-3").why_pending ==
        "needs 3 servers with update rule signum of the plugin with SHA-256 12ab, 2 are alive "
        "(without it: server-1, server-3; start them with --rule-plugin); waits until more join, "
        "and jobs behind it go on");
  places.JoinServer("server-5", {rule});
  places.Settle();
  CHECK(places.Started().back().job == "many-3");
}

}  // namespace
}  // namespace capstan::scheduler::job_placer_test
