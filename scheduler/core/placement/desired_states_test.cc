#include "scheduler/core/placement/desired_states.h"

#include <catch2/catch.hpp>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/placement/job_placer.h"

namespace capstan::scheduler::desired_states_test {
namespace {

constexpr absl::Duration kHold = absl::Seconds(1);

// Nodes and jobs, as SchedulerCore has them, with their desired states.
struct Cluster {
  Cluster() {
    Join("server-1", Role::kServer);
    Join("worker-1", Role::kWorker);
  }
  void Join(const NodeId& name, Role role) {
    NodeInfo info{.name = name, .role = role};
    info.address = info.name + ":1";
    info.task_capacity = role == Role::kWorker ? 2 : 0;
    REQUIRE_OK(membership.Register(info, incarnations.Take(), now, events).status());
    if (role == Role::kWorker) placer.slots().AddNode(name, info.task_capacity);
    states.AddNode(name);
    states.NoteChanged();
  }
  // Places and starts a job with two tasks.
  void Start(const JobId& id) {
    JobPlan plan;
    plan.id = id;
    plan.workers = 2;
    plan.train_count = 100;
    plan.tables = {100};
    REQUIRE_OK(placer.Enqueue(plan));
    jobs.Add(plan, now);
    placer.StartJobs(now, events);
    states.NoteChanged();
  }
  TaskKey Task(const JobId& job, int rank) {
    return {job, Rank(rank), jobs.RunOf(job)->parts().tasks.at(Rank(rank)).incarnation};
  }
  // Answers what has changed.
  void Settle() {
    states.Refresh(now, replies);
    states.AnswerChanged(replies);
  }
  template <typename T>
  T Only() {
    REQUIRE(replies.size() == 1);
    T reply = std::get<T>(replies.front());
    replies.clear();
    return reply;
  }

  JobTable jobs;
  Membership membership{{}};
  IncarnationCounter incarnations{Incarnation(1)};
  JobPlacer placer{{}, &jobs, &membership, &incarnations};
  StoreRevisions revisions{7};
  DesiredStates states{{.lease = absl::Seconds(3),
                        .sync_interval = kHold,
                        .record_interval = absl::InfiniteDuration()},
                       &jobs,
                       &membership,
                       &placer.slots(),
                       &revisions};
  Instant now = Instant::FromOrigin(absl::Seconds(100));
  Events events;
  std::vector<Reply> replies;
};

TEST_CASE("Desired states: a worker hears of its tasks, a server of its tables, at once",
          "[scheduler][core]") {
  Cluster cluster;
  cluster.Settle();
  cluster.states.HoldNode(Ticket(1), "worker-1", Generation(1), cluster.now);
  cluster.states.HoldNode(Ticket(2), "server-1", Generation(1), cluster.now);
  cluster.Settle();
  CHECK(cluster.replies.empty());

  cluster.Start("job-1");
  cluster.Settle();
  REQUIRE(cluster.replies.size() == 2);  // Ordered by name.
  const auto& server = std::get<NodeReply>(cluster.replies[0]);
  CHECK(server.ticket == Ticket(2));
  CHECK(server.changed);
  CHECK(server.generation == Generation(2));
  REQUIRE(server.tables.size() == 1);
  CHECK(server.tables[0].routing == cluster.jobs.RunOf("job-1")->parts().routing);
  CHECK(server.tasks.empty());
  const auto& worker = std::get<NodeReply>(cluster.replies[1]);
  CHECK(worker.ticket == Ticket(1));
  CHECK(worker.tasks == std::vector<TaskKey>{cluster.Task("job-1", 0), cluster.Task("job-1", 1)});
  CHECK(worker.tables.empty());
  CHECK(worker.revision == cluster.revisions.current());
}

TEST_CASE("Desired states: who has seen the newest waits for its time", "[scheduler][core]") {
  Cluster cluster;
  cluster.Start("job-1");
  cluster.Settle();
  CHECK(cluster.states.IsNewest("worker-1", Generation(2)));
  CHECK_FALSE(cluster.states.IsNewest("worker-1", Generation(1)));
  CHECK_FALSE(cluster.states.IsNewest("worker-9", Generation(1)));
  cluster.states.HoldNode(Ticket(1), "worker-1", Generation(2), cluster.now);
  cluster.Settle();
  cluster.states.AnswerExpired(cluster.now + kHold - absl::Milliseconds(1), cluster.replies);
  CHECK(cluster.replies.empty());
  CHECK(cluster.states.NextDeadline() == cluster.now + kHold);
  cluster.states.AnswerExpired(cluster.now + kHold, cluster.replies);
  const auto reply = cluster.Only<NodeReply>();
  CHECK_FALSE(reply.changed);
  CHECK(reply.tasks.empty());
  CHECK(cluster.states.NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE("Desired states: who has seen a later one than there is hears a newer one",
          "[scheduler][core]") {
  Cluster cluster;
  cluster.Settle();
  CHECK(cluster.states.RaiseGeneration("worker-1", Generation(40)));  // A lost store's.
  CHECK(cluster.states.IsNewest("worker-1", Generation(41)));
  CHECK(cluster.states.RaiseGeneration("worker-1", Generation(3)));
  CHECK(cluster.states.IsNewest("worker-1", Generation(42)));
  CHECK_FALSE(cluster.states.RaiseGeneration("worker-9", Generation(1)));
}

TEST_CASE("Desired states: the sync of a node that has died is refused", "[scheduler][core]") {
  Cluster cluster;
  cluster.states.HoldNode(Ticket(1), "worker-1", Generation(1), cluster.now);
  cluster.states.RemoveNode({"worker-1", Incarnation(2), "no sync for 3s", cluster.now},
                            cluster.replies);
  const auto reply = cluster.Only<NodeReply>();
  CHECK(reply.ticket == Ticket(1));
  CHECK_STATUS(reply.status, absl::StatusCode::kAborted,
               "worker-1: incarnation 2 is dead: no sync for 3s");
  CHECK_FALSE(cluster.states.RaiseGeneration("worker-1", Generation(1)));
}

TEST_CASE("Desired states: a task's sync brings what it has not seen", "[scheduler][core]") {
  Cluster cluster;
  cluster.Start("job-1");
  cluster.Settle();
  TaskReport report{.task = cluster.Task("job-1", 0)};
  cluster.states.HoldTask(Ticket(1), report, cluster.now, cluster.replies);
  CHECK(cluster.replies.empty());
  SECTION("a later sync of it answers the earlier one") {
    cluster.states.HoldTask(Ticket(2), report, cluster.now, cluster.replies);
    const auto reply = cluster.Only<TaskReply>();
    CHECK(reply.ticket == Ticket(1));
    CHECK(reply.routing == cluster.jobs.RunOf("job-1")->parts().routing);
    CHECK(reply.first_routing);
    CHECK(reply.lease == absl::Seconds(3));
    CHECK(reply.sync_interval == kHold);
    cluster.states.AnswerTask(report.task, cluster.replies);
    CHECK(cluster.Only<TaskReply>().ticket == Ticket(2));
  }
  SECTION("what it has seen does not come again") {
    const auto& run = *cluster.jobs.RunOf("job-1");
    cluster.states.AnswerTask(report.task, cluster.replies);
    cluster.replies.clear();
    report.routing_seen = run.parts().routing->generation;
    report.assignment_seen = run.parts().tasks.at(Rank(0)).assignment.generation;
    cluster.states.HoldTask(Ticket(2), report, cluster.now, cluster.replies);
    cluster.states.AnswerExpired(cluster.now + kHold, cluster.replies);
    const auto reply = cluster.Only<TaskReply>();
    CHECK(reply.routing == nullptr);
    CHECK_FALSE(reply.has_assignment);
    CHECK_FALSE(reply.first_routing);
  }
  SECTION("it is refused once nobody wants the task") {
    cluster.jobs.RunOf("job-1")->End(JobState::kStopped, {}, cluster.now, cluster.events);
    cluster.states.NoteChanged();
    cluster.Settle();
    const auto reply = cluster.Only<TaskReply>();
    CHECK_STATUS(reply.status, absl::StatusCode::kAborted, "is not wanted any more");
  }
}

}  // namespace
}  // namespace capstan::scheduler::desired_states_test
