// Tests a job whose tasks cannot reach a live server (issue 20, fault 5).
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/testing/job_fixture.h"

namespace capstan::scheduler::job_links_test {
namespace {

using testing::JobFixture;

// Lets the tasks report for `time`. The tasks in `cut` report that `servers` do not answer.
void Report(JobFixture& job, const std::vector<int>& cut, absl::Duration time,
            const std::vector<NodeId>& servers = {"server-1"}) {
  for (const Instant end = job.now + time; job.now < end; job.now = job.now + absl::Seconds(1)) {
    for (int rank = 0; rank < job.plan.workers; ++rank) {
      if (!job.run->parts().tasks.at(Rank(rank)).placed()) continue;
      TaskReport report = job.Base(rank);
      report.wait = {.what = "pull", .peer = "server-1"};
      if (std::count(cut.begin(), cut.end(), rank) > 0) report.wait.silent = servers;
      REQUIRE_OK(job.Send(report));
    }
    job.run->Tick(job.now, job.events);
  }
}

// Places rank 1 on the worker of rank 0.
void PlaceBesideTheFirst(JobFixture& job) {
  job.Exit(1, /*code=*/1);
  job.incarnations[1] = 2;
  job.run->PlaceTask(Rank(1), job.Key(1).incarnation, "worker-0", "w:1", job.now, job.events);
}

bool Holds(const JobFixture& job, const std::string& server) {
  for (const ShardRoute& shard : job.run->parts().routing->shards) {
    const auto& primary = job.run->parts().routing->servers[static_cast<size_t>(shard.server)];
    if (primary.node == server) return true;
  }
  return false;
}

// Returns true if `server` has a replica of a shard, which is filled there to take over.
bool Fills(const JobFixture& job, const std::string& server) {
  const Routing& routing = *job.run->parts().routing;
  return std::ranges::any_of(routing.shards, [&](const ShardRoute& shard) {
    return std::ranges::any_of(shard.replicas, [&](const ReplicaRef& replica) {
      return routing.servers[static_cast<size_t>(replica.server)].node == server;
    });
  });
}

TEST_CASE("Job: a task that cannot reach a server which others reach leaves its worker",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  Report(job, {0}, absl::Seconds(10));
  CHECK(job.run->parts().tasks.at(Rank(0)).placed());
  Report(job, {0}, absl::Seconds(1));
  CHECK_FALSE(job.run->parts().tasks.at(Rank(0)).placed());
  CHECK(job.run->parts().task_watch.links().AvoidedWorkers() == std::set<NodeId>{"worker-0"});
  const std::vector<TaskDied> died = job.Seen<TaskDied>();
  REQUIRE(died.size() == 1);
  CHECK_FALSE(died[0].counted);
  CHECK(died[0].failure.message == "it cannot reach server-1, which other tasks reach");
  job.ApplyAll();
  CHECK(job.Of(1).slots.size() == 4);  // The other task takes over its work.
  CHECK_THAT(job.View().detail, Catch::Contains("worker-0 cannot reach server-1"));
  CHECK(Holds(job, "server-1"));
}

TEST_CASE("Job: all tasks of a worker that cannot reach a server leave it", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kAsp, 3);
  PlaceBesideTheFirst(job);
  job.Start();
  Report(job, {0}, absl::Seconds(3));
  Report(job, {0, 1}, absl::Seconds(14));
  CHECK_FALSE(job.run->parts().tasks.at(Rank(0)).placed());
  CHECK_FALSE(job.run->parts().tasks.at(Rank(1)).placed());
  CHECK(job.run->parts().tasks.at(Rank(2)).placed());
  CHECK(job.Seen<LinkDied>().size() == 1);
}

TEST_CASE("Job: a task on the same worker says nothing about the server", "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kSsp);
  PlaceBesideTheFirst(job);
  job.Start();
  Report(job, {0}, absl::Seconds(11));
  REQUIRE(job.Seen<LinkDied>().size() == 1);
  CHECK(job.Seen<LinkDied>()[0].shards_move);
}

TEST_CASE("Job: the shards of a server that no task reaches move to one that they reach",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kSsp);
  job.Start();
  Report(job, {0, 1}, absl::Seconds(11));
  REQUIRE(job.Seen<LinkDied>().size() >= 1);
  CHECK(job.Seen<LinkDied>()[0].shards_move);
  CHECK(job.Seen<TaskDied>().empty());
  // A copy is filled at the other server, which becomes primary when it has proved that it lives.
  const std::shared_ptr<const Routing> routing = job.run->parts().routing;
  for (const ShardRoute& shard : routing->shards) {
    if (routing->servers[static_cast<size_t>(shard.server)].node != "server-1") continue;
    REQUIRE(shard.replicas.size() == 1);
    TableReport filled{"job-1",
                       job.run->parts().routing->generation,
                       job.run->parts().members.membership().generation,
                       {}};
    filled.replicas.push_back({.shard = shard.key,
                               .term = shard.term,
                               .node = "server-2",
                               .incarnation = Incarnation(2)});
    job.run->OnTableReport("server-1", filled, job.now, job.events);
  }
  CHECK(Holds(job, "server-1"));  // The other one may be dead.
  const TableReport applied{"job-1",
                            job.run->parts().routing->generation,
                            job.run->parts().members.membership().generation,
                            {}};
  job.run->OnTableReport("server-2", applied, job.now, job.events);
  CHECK(Holds(job, "server-1"));  // The former primary may still answer reads alone.
  job.run->OnTableReport("server-1", applied, job.now, job.events);
  CHECK_FALSE(Holds(job, "server-1"));
  Report(job, {0, 1}, absl::Minutes(3));  // Late reports end no task.
  CHECK(job.Seen<TaskDied>().empty());
}

TEST_CASE("Job: shards whose pushes are nowhere else move only if no other worker helps",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp);
  job.Start();
  Report(job, {0, 1}, absl::Seconds(12));
  CHECK_FALSE(job.Seen<LinkDied>()[0].shards_move);
  CHECK_FALSE(job.run->parts().tasks.at(Rank(0)).placed());
  CHECK_FALSE(job.run->parts().tasks.at(Rank(1)).placed());
  for (const int rank : {0, 1}) {  // There is no other worker.
    job.Place(rank);
    job.Hello(rank);
  }
  job.ApplyAll();
  Report(job, {0, 1}, absl::Seconds(12));
  CHECK(job.run->parts().tasks.at(Rank(0)).placed());
  CHECK(job.run->parts().tasks.at(Rank(1)).placed());
  CHECK(job.Seen<LinkDied>().back().shards_move);
}

// sim --seed=2294163455: every server was avoided for a link that had been dead for a while.
TEST_CASE("Job: where nothing else is left, links that were dead are tried again",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kSsp);
  job.Start();
  Report(job, {0, 1}, absl::Seconds(11), {"server-2"});
  REQUIRE(job.Seen<LinkDied>().size() == 2);
  Report(job, {}, absl::Seconds(1));
  REQUIRE_FALSE(Fills(job, "server-2"));
  Report(job, {0, 1}, absl::Seconds(12));
  CHECK(Fills(job, "server-2"));
  CHECK_THAT(job.View().detail, !Catch::Contains("cannot reach server-2"));
  CHECK(job.Seen<TaskDied>().empty());
}

TEST_CASE("Job: shards do not move from one server that is not reached to another",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kSsp);
  job.Start();
  Report(job, {0, 1}, absl::Seconds(11), {"server-1", "server-2"});
  std::set<NodeId> left;
  for (const LinkDied& died : job.Seen<LinkDied>()) {
    if (died.shards_move) left.insert(died.server);
  }
  CHECK(left.size() == 1);
  CHECK(job.Seen<TaskDied>().size() == 2);  // The tasks move to other workers.
}

TEST_CASE("Job: one worker, which cannot reach the one server, is tried elsewhere once",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kAsp, 1);
  job.Start();
  job.run->OnServerDraining({"server-2", "h:2", Incarnation(2)}, true, job.now, job.events);
  Report(job, {0}, absl::Seconds(12));
  CHECK_FALSE(job.run->parts().tasks.at(Rank(0)).placed());
  job.Place(0);
  job.Hello(0);
  job.ApplyAll();
  Report(job, {0}, absl::Minutes(4));
  CHECK(job.run->parts().tasks.at(Rank(0)).placed());
  CHECK(job.Seen<TaskDied>().size() == 1);
  CHECK_FALSE(job.run->parts().ended());
}

TEST_CASE("Job: a server that is dead for the scheduler, too, is no dead link",
          "[scheduler][core]") {
  JobFixture job(ConsistencyMode::kBsp, 2, 0, Objective::kClasses, std::nullopt, /*log=*/true);
  job.Start();
  job.Died("server-1");
  Report(job, {0, 1}, absl::Seconds(30));
  CHECK(job.Seen<LinkDied>().empty());
  CHECK(job.Seen<TaskDied>().empty());
}

}  // namespace
}  // namespace capstan::scheduler::job_links_test
