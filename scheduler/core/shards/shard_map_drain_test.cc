// Tests that a drained server keeps its copies until they are known to be no longer needed.
#include <catch2/catch.hpp>

#include "absl/time/time.h"
#include "scheduler/core/shards/shard_map.h"

namespace capstan::scheduler::shard_map_drain_test {
namespace {

const ServerRef kFirst{.node = "server-1", .incarnation = Incarnation(1)};
const ServerRef kSecond{.node = "server-2", .incarnation = Incarnation(2)};
const ServerRef kThird{.node = "server-3", .incarnation = Incarnation(3)};
const Instant kNow = Instant() + absl::Seconds(1);

// The first server reports that a copy is in sync.
void Fill(ShardMap& map, const ServerRef& server) {
  TableReport report{"job-1", map.routing().generation, Generation(1), {}, {}};
  const ShardRoute& shard = map.routing().shards[0];
  report.replicas = {{shard.key, shard.term, server.node, server.incarnation}};
  map.OnTableReport(kFirst.node, report);
  map.Settle(kNow);
}

// Returns a map of one shard: its primary is on the first server, a replica in sync on the second.
ShardMap TwoCopies() {
  Routing routing{.job = "job-1", .generation = Generation(1), .shards = {}, .servers = {kFirst}};
  routing.shards.push_back({.key = {TableId(0), ShardId(0)}, .elements = {0, 10}});
  ShardMap map(routing, {.replicas = 1});
  map.SetServer(kFirst, false);
  map.SetServer(kSecond, false);
  map.Settle(kNow);
  Fill(map, kSecond);
  REQUIRE(map.complete());
  return map;
}

NodeId Primary(const ShardMap& map) {
  const Routing& routing = map.routing();
  return routing.servers[static_cast<size_t>(routing.shards[0].server)].node;
}

bool HandsOver(const ShardMap& map) { return map.routing().shards[0].hands_over; }

TEST_CASE("Shard map: a drained primary stays until the next one has shown that it lives",
          "[scheduler][core]") {
  ShardMap map = TwoCopies();
  map.SetServer(kFirst, /*draining=*/true);
  map.Settle(kNow);
  CHECK(Primary(map) == kFirst.node);
  map.NoteApplied(kFirst.node, map.routing().generation);  // It knows that it will be replaced.
  map.Settle(kNow);
  CHECK(Primary(map) == kFirst.node);
  SECTION("it lives") {
    map.NoteApplied(kSecond.node, map.routing().generation);
    map.Settle(kNow);
    CHECK(map.CopiesOn(kFirst.node) == 0);
    CHECK(Primary(map) == kSecond.node);
  }
  SECTION("it was dead already") {
    map.ServerDied(kSecond.node, kNow);
    map.Settle(kNow);
    CHECK_FALSE(map.has_lost());
    CHECK(Primary(map) == kFirst.node);
    SECTION("and so may be the one that is filled after it") {
      map.SetServer(kThird, false);
      map.Settle(kNow);
      map.NoteApplied(kThird.node, map.routing().generation);
      Fill(map, kThird);
      CHECK(Primary(map) == kFirst.node);
      map.NoteApplied(kFirst.node, map.routing().generation);
      map.NoteApplied(kThird.node, map.routing().generation);
      map.Settle(kNow);
      CHECK(Primary(map) == kThird.node);
    }
  }
}

TEST_CASE("Shard map: a primary that lives is replaced once it knows that it is handing over",
          "[scheduler][core]") {
  ShardMap map = TwoCopies();
  CHECK_FALSE(HandsOver(map));
  map.SetServer(kFirst, /*draining=*/true);
  map.Settle(kNow);
  CHECK(HandsOver(map));
  map.NoteApplied(kSecond.node, map.routing().generation);
  map.Settle(kNow);
  CHECK(Primary(map) == kFirst.node);  // It may answer reads alone by the earlier table.
  SECTION("it hears of it") {
    map.NoteApplied(kFirst.node, map.routing().generation);
    map.Settle(kNow);
    CHECK(Primary(map) == kSecond.node);
    CHECK_FALSE(HandsOver(map));
  }
  SECTION("it is dead instead") {
    map.ServerDied(kFirst.node, kNow + absl::Seconds(1));
    map.Settle(kNow);
    CHECK(Primary(map) == kFirst.node);  // It may still answer reads.
    map.Settle(kNow + absl::Seconds(1));
    CHECK(Primary(map) == kSecond.node);
    CHECK_FALSE(HandsOver(map));
  }
  SECTION("it is to stay after all, and then to go again") {
    const Generation handed_over = map.routing().generation;
    map.SetServer(kFirst, /*draining=*/false);
    map.Settle(kNow);
    CHECK_FALSE(HandsOver(map));
    map.NoteApplied(kSecond.node, map.routing().generation);
    map.SetServer(kFirst, /*draining=*/true);
    map.Settle(kNow);
    CHECK(HandsOver(map));
    map.NoteApplied(kSecond.node, map.routing().generation);
    map.NoteApplied(kFirst.node, handed_over);  // A later table may have cancelled the move.
    map.Settle(kNow);
    CHECK(Primary(map) == kFirst.node);
    map.NoteApplied(kFirst.node, map.routing().generation);
    map.Settle(kNow);
    CHECK(Primary(map) == kSecond.node);
  }
}

TEST_CASE("Shard map: the disk of a dead primary is wanted until another one has taken over",
          "[scheduler][core]") {
  ShardMap map = TwoCopies();
  const Instant fenced_at = kNow + absl::Milliseconds(500);
  map.ServerDied(kFirst.node, fenced_at);
  const ServerRef next_incarnation{.node = kFirst.node, .incarnation = Incarnation(4)};
  map.SetServer(next_incarnation, /*draining=*/true);
  map.Settle(kNow);
  CHECK(map.CopiesOn(kFirst.node) == 0);
  CHECK(map.NeedsLogOf(kFirst.node));
  CHECK_FALSE(map.NeedsLogOf(kSecond.node));
  SECTION("it has") {
    map.Settle(fenced_at);
    CHECK(Primary(map) == kSecond.node);
    CHECK_FALSE(map.NeedsLogOf(kFirst.node));
  }
  SECTION("it was dead already") {
    map.ServerDied(kSecond.node, fenced_at);
    map.Settle(fenced_at);
    CHECK(map.has_lost());
    CHECK(map.NeedsLogOf(kFirst.node));
    CHECK(map.NeedsLogOf(kSecond.node));
  }
}

TEST_CASE("Shard map: a drained replica stays until the primary has shown that it lives",
          "[scheduler][core]") {
  ShardMap map = TwoCopies();
  map.SetServer(kSecond, /*draining=*/true);
  map.Settle(kNow);
  CHECK(map.CopiesOn(kSecond.node) == 1);
  SECTION("it lives") {
    map.NoteApplied(kFirst.node, map.routing().generation);
    map.Settle(kNow);
    CHECK(map.CopiesOn(kSecond.node) == 0);
  }
  SECTION("it was dead already") {
    map.ServerDied(kFirst.node, kNow);
    map.Settle(kNow);
    CHECK_FALSE(map.has_lost());
    CHECK(Primary(map) == kSecond.node);
  }
  SECTION("the server is to be used again") {
    map.SetServer(kSecond, /*draining=*/false);
    map.Settle(kNow);
    map.NoteApplied(kFirst.node, map.routing().generation);
    map.Settle(kNow);
    CHECK(map.CopiesOn(kSecond.node) == 1);
  }
}

}  // namespace
}  // namespace capstan::scheduler::shard_map_drain_test
