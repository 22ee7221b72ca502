// Tests a job whose servers die, come back, join and are drained.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/shards/shard_map.h"
#include "scheduler/core/testing/servers_fixture.h"

namespace capstan::scheduler::job_run_servers_test {
namespace {

TEST_CASE("Job: it begins with its replicas unfilled, and counts them once they are",
          "[scheduler][core]") {
  ServersFixture job(1);
  CHECK(job.View().phase == JobPhase::kTraining);
  CHECK(job.run->parts().shards.complete());
  CHECK(job.run->parts().routing->generation > Generation(1));
  for (const ShardRoute& route : job.run->parts().routing->shards) {
    CHECK(route.term == Term(1));
    REQUIRE(route.replicas.size() == 1);
    CHECK(route.replicas[0].in_sync);
  }
}

TEST_CASE("Job: a dead server's shards are promoted, its replicas placed anew, and it trains on",
          "[scheduler][core]") {
  ServersFixture job(1);
  const Generation before = job.run->parts().routing->generation;
  const std::vector<SampleLease> leases = job.Of().samples;
  job.run->TakeChangedAssignments();
  job.Kill({"server-2"});
  CHECK_FALSE(job.run->parts().ended());
  CHECK(job.run->parts().routing->generation == before.Next());
  CHECK_FALSE(job.run->parts().server_watch.Uses("server-2"));
  CHECK(job.run->TakeChangedAssignments() == std::vector<Rank>{Rank(0)});  // It gets the new table.
  CHECK(job.Of().samples == leases);
  CHECK(job.View().phase == JobPhase::kTraining);
  CHECK_FALSE(job.run->parts().shards.complete());
  job.ApplyAll();
  CHECK(job.run->parts().shards.complete());
  // There are two servers, so each holds a copy of all shards.
  CHECK(job.run->parts().shards.CopiesOn("server-1") ==
        static_cast<int>(job.run->parts().routing->shards.size()));
}

TEST_CASE("Job: a server that comes back is primary of its share again, and no copy is given up",
          "[scheduler][core]") {
  ServersFixture job(1, /*log=*/false, /*server_count=*/2);
  const size_t all = job.run->parts().routing->shards.size();
  job.Kill({"server-2"});
  job.ApplyAll();
  CHECK(job.ShardsOf("server-1").size() == all);
  job.Start(2);
  job.events.clear();
  job.ApplyAll();
  CHECK(job.ShardsOf("server-2").size() == 2);
  job.Pass(absl::Seconds(1));
  job.ApplyAll();
  CHECK(job.ShardsOf("server-1").size() == all / 2);
  CHECK(job.ShardsOf("server-2").size() == all / 2);
  CHECK(job.run->parts().shards.complete());
  int swapped = 0;
  for (const Event& event : job.events) {
    const auto* changed = std::get_if<RoutingChanged>(&event);
    if (changed == nullptr || changed->moves.empty()) continue;
    CHECK(changed->degraded == 0);
    for (const PrimaryMove& move : changed->moves) swapped += move.swapped;
  }
  CHECK(swapped == static_cast<int>(all / 2));
}

TEST_CASE("Shard map: primaries change roles with replicas two at a time, with a second in between",
          "[scheduler][core]") {
  std::vector<ServerRef> servers = {{"server-1", "1:1", Incarnation(1)},
                                    {"server-2", "2:1", Incarnation(2)}};
  Routing routing = PlaceShards("job-1", Generation(1), {8'000'000}, servers, /*replicas=*/1);
  for (ShardRoute& route : routing.shards) {
    route.server = 0;
    route.replicas = {{.server = 1, .in_sync = true}};
  }
  ShardMap map(routing, {.replicas = 1});
  Instant now = Instant::FromOrigin(absl::Seconds(9));
  REQUIRE(routing.shards.size() == 16);
  for (int group = 0; group < 3; ++group) {
    CHECK(map.Settle(now));
    CHECK(map.complete());
    CHECK(map.NextDeadline() == now + absl::Seconds(1));
    CHECK_FALSE(map.Settle(now + absl::Milliseconds(999)));
    now = now + absl::Seconds(1);
  }
  CHECK(map.Settle(now));  // Now the spread is a quarter of the mean.
  CHECK(map.NextDeadline() == Instant::InfiniteFuture());
  const auto& shards = map.routing().shards;
  CHECK(std::count_if(shards.begin(), shards.end(),
                      [](const ShardRoute& route) { return route.server == 1; }) == 7);
}

TEST_CASE("Job: nobody is promoted before the dead primary's read lease is over",
          "[scheduler][core]") {
  ServersFixture job(1);
  const Generation before = job.run->parts().routing->generation;
  job.Kill({"server-2"}, absl::Milliseconds(500));
  CHECK_FALSE(job.ShardsOf("server-2").empty());
  CHECK(job.run->NextDeadline() == job.now + absl::Milliseconds(500));
  job.Pass(absl::Milliseconds(499));
  CHECK_FALSE(job.ShardsOf("server-2").empty());
  job.Pass(absl::Milliseconds(1));
  CHECK(job.ShardsOf("server-2").empty());
  CHECK(job.run->parts().routing->generation > before);
}

TEST_CASE("Job: a server whose disk fails is as good as dead to the job", "[scheduler][core]") {
  const Failure failed{FailureReason::kServerLost, "wal-3: no space"};
  const auto fail = [&](ServersFixture& job, const NodeId& server) {
    TableReport report{"job-1", job.run->parts().routing->generation, Generation(0), failed, {}};
    job.run->OnTableReport(server, report, job.now, job.events);
  };
  SECTION("its replicas take over, and it gets nothing more in this incarnation") {
    ServersFixture job(1, /*log=*/true);
    fail(job, "server-2");
    CHECK_FALSE(job.run->parts().ended());
    CHECK(job.View().phase == JobPhase::kTraining);
    const bool told = std::any_of(job.events.begin(), job.events.end(), [](const Event& event) {
      const auto* said = std::get_if<ServerFailed>(&event);
      return said != nullptr && said->node == "server-2" && said->why == "wal-3: no space";
    });
    CHECK(told);
    job.ApplyAll();
    CHECK(job.run->parts().shards.complete());
    job.run->OnServerDraining(job.servers.at("server-2"), false, job.now, job.events);
    CHECK(job.run->parts().shards.CopiesOn("server-2") == 0);
    job.Kill({"server-2"});
    job.Start(2);
    job.ApplyAll();
    job.ApplyAll();
    CHECK(job.run->parts().shards.CopiesOn("server-2") > 0);
  }
  SECTION("without replicas it is awaited with its log, and may say so again") {
    ServersFixture job(0, /*log=*/true);
    const std::vector<int> shards = job.ShardsOf("server-2");
    fail(job, "server-2");
    fail(job, "server-2");
    CHECK(job.View().phase == JobPhase::kRecovering);
    job.Kill({"server-2"});
    job.Start(2, shards);
    job.ApplyAll();
    CHECK(job.View().phase == JobPhase::kTraining);
  }
  SECTION("without a log either, the job ends, and says why") {
    ServersFixture job(0);
    fail(job, "server-2");
    REQUIRE(job.run->parts().state == JobState::kFailed);
    CHECK(job.View().failure ==
          Failure{FailureReason::kServerLost,
                  "server-2, which held shards of the job, is gone: wal-3: no space"});
  }
}

TEST_CASE("Job: a replica that does not answer leaves and is filled again", "[scheduler][core]") {
  ServersFixture job(1, /*log=*/false, /*server_count=*/2);
  const ShardRoute route = job.run->parts().routing->shards[0];
  const ServerRef primary = job.Primary(route);
  const ServerRef replica =
      job.run->parts().routing->servers[static_cast<size_t>(route.replicas[0].server)];
  const auto report = [&](Generation applied, ReplicaReport::State state) {
    const ReplicaReport said{route.key, route.term, replica.node, replica.incarnation, state};
    job.run->OnTableReport(
        primary.node,
        {"job-1", applied, job.run->parts().members.membership().generation, {}, {said}}, job.now,
        job.events);
  };
  const Generation before = job.run->parts().routing->generation;
  report(before, ReplicaReport::State::kUnreachable);
  CHECK(job.run->parts().routing->shards[0].replicas.empty());
  // The copy comes back only when the primary knows that it left. Earlier reports do not count.
  report(before, ReplicaReport::State::kFilled);
  CHECK(job.run->parts().routing->shards[0].replicas.empty());
  report(job.run->parts().routing->generation, ReplicaReport::State::kUnreachable);
  REQUIRE(job.run->parts().routing->shards[0].replicas.size() == 1);
  report(before, ReplicaReport::State::kFilled);
  CHECK_FALSE(job.run->parts().routing->shards[0].replicas[0].in_sync);
  report(job.run->parts().routing->generation, ReplicaReport::State::kFilled);
  CHECK(job.run->parts().routing->shards[0].replicas[0].in_sync);
}

TEST_CASE("Job: a drained server's shards are filled elsewhere first, also without replicas",
          "[scheduler][core]") {
  for (const int replicas : {0, 1}) {
    ServersFixture job(replicas);
    const std::vector<int> shards = job.ShardsOf("server-2");
    job.run->OnServerDraining(job.servers.at("server-2"), true, job.now, job.events);
    CHECK(job.ShardsOf("server-2") == shards);  // No shard moves to a copy that is not filled.
    job.ApplyAll();
    job.ApplyAll();
    CHECK(job.run->parts().shards.CopiesOn("server-2") == 0);
    CHECK_FALSE(job.run->parts().server_watch.Uses("server-2"));
    CHECK(job.run->parts().shards.complete());
    CHECK(job.View().phase == JobPhase::kTraining);
  }
}

TEST_CASE("Job: the only server cannot be drained until another comes", "[scheduler][core]") {
  ServersFixture job(0, /*log=*/false, /*server_count=*/1);
  job.run->OnServerDraining(job.servers.at("server-1"), true, job.now, job.events);
  job.ApplyAll();
  CHECK(job.run->parts().shards.CopiesOn("server-1") > 0);
  CHECK_FALSE(job.run->parts().shards.servers().CanMoveFrom("server-1"));
  job.Start(2);
  job.ApplyAll();
  job.ApplyAll();
  CHECK(job.run->parts().shards.CopiesOn("server-1") == 0);
}

TEST_CASE("Job: a server that joins takes its part of the shards", "[scheduler][core]") {
  ServersFixture job(0, /*log=*/false, /*server_count=*/1);
  const size_t shards = job.run->parts().routing->shards.size();
  REQUIRE(shards >= 4);
  job.Start(2);
  for (size_t i = 0; i < shards; ++i) job.ApplyAll();
  const size_t moved = job.ShardsOf("server-2").size();
  CHECK(moved + 1 >= shards / 2);
  CHECK(moved <= shards / 2 + 1);
}

}  // namespace
}  // namespace capstan::scheduler::job_run_servers_test
