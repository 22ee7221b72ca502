#include "server/core/replication/job_routing.h"

#include <map>

#include "absl/time/time.h"
#include "catch2/catch.hpp"
#include "common/testing/status_matchers.h"

namespace capstan::server::job_routing_test {
namespace {

const FollowerKey kSelf{"server-1", Incarnation(3)};
const FollowerKey kOther{"server-2", Incarnation(4)};
const HeldShard kShard{{TableId(0), ShardId(0)}, {0, 8}};
const HeldShard kSecond{{TableId(0), ShardId(1)}, {8, 16}};

// A job of two shards, whose primaries are `first` and `second`.
RoutingTable TableOf(uint64_t generation, const FollowerKey& first, const FollowerKey& second,
                     Term term = Term(1)) {
  return {.generation = Generation(generation),
          .shards = {{.shard = kShard, .term = term, .primary = first, .replicas = {}},
                     {.shard = kSecond, .term = term, .primary = second, .replicas = {}}}};
}

// The states of the shards that this server holds.
struct Holding {
  std::map<ShardKey, ShardState> states;
  ShardState operator()(const HeldShard& shard) const {
    const auto it = states.find(shard.key);
    return it == states.end() ? ShardState() : it->second;
  }
};

TEST_CASE("JobRouting: a primary makes the shards that it lacks", "[server][core]") {
  const JobRouting routing(kSelf);
  Holding holding;
  SECTION("in the first term at their initial values") {
    REQUIRE_OK_AND_ASSIGN(const auto orders,
                          routing.MissingShards(TableOf(1, kSelf, kOther), {}, holding));
    REQUIRE(orders.size() == 1);
    CHECK(orders[0].shard == kShard);
    CHECK(orders[0].from == ShardOrder::From::kInitialValues);
    CHECK(orders[0].term == Term(1));
  }
  SECTION("in a later term from its log") {
    const ShardSources sources{.restore_term = {}, .log_term = Term(5)};
    holding.states[kShard.key] = {.is_held = true, .is_primary = false, .term = Term(4)};
    REQUIRE_OK_AND_ASSIGN(
        const auto orders,
        routing.MissingShards(TableOf(5, kSelf, kSelf, Term(5)), sources, holding));
    REQUIRE(orders.size() == 1);  // It has a copy of the other one.
    CHECK(orders[0].shard == kSecond);
    CHECK(orders[0].from == ShardOrder::From::kLog);
  }
  SECTION("from a checkpoint even where it holds one, but not twice") {
    const ShardSources sources{.restore_term = Term(6), .log_term = {}};
    holding.states[kShard.key] = {.is_held = true, .is_primary = true, .term = Term(5)};
    holding.states[kSecond.key] = {.is_held = true, .is_primary = true, .term = Term(6)};
    REQUIRE_OK_AND_ASSIGN(
        const auto orders,
        routing.MissingShards(TableOf(7, kSelf, kSelf, Term(6)), sources, holding));
    REQUIRE(orders.size() == 1);
    CHECK(orders[0].shard == kShard);
    CHECK(orders[0].from == ShardOrder::From::kCheckpoint);
  }
  SECTION("and never invents the values of a later term") {
    CHECK_STATUS(
        routing.MissingShards(TableOf(5, kSelf, kOther, Term(5)), {}, holding).status(),
        absl::StatusCode::kInternal,
        "routing generation 5 gives this server table 0 shard 0, whose values it has never held");
  }
}

TEST_CASE("JobRouting: a table gives a server the shards that name it", "[server][core]") {
  JobRouting routing(kSelf);
  RoutingTable table = TableOf(2, kSelf, kOther, Term(2));
  table.shards[0].replicas = {{.key = kOther, .in_sync = true}};
  table.shards[0].hands_over = true;
  table.shards[0].awaits_log = true;
  SECTION("as primary, with its followers") {
    const std::vector<RoutedShard> routed = routing.Take(table, Incarnation(0));
    REQUIRE(routed.size() == 1);
    CHECK(routed[0].shard == kShard);
    CHECK(routed[0].role.role == ShardRole::kPrimary);
    CHECK(routed[0].role.generation == Generation(2));
    CHECK(routed[0].role.term == Term(2));
    CHECK(routed[0].role.primary == kSelf.node);
    REQUIRE(routed[0].role.followers.size() == 1);
    CHECK(routed[0].role.followers[0].key == kOther);
    CHECK(routed[0].role.followers[0].in_sync);
    CHECK(routed[0].role.hands_over);
    CHECK(routed[0].role.awaits_log);
  }
  SECTION("as replica, which has no followers and hands nothing over") {
    table.shards[1].replicas = {{.key = kSelf, .in_sync = false}};
    table.shards[1].hands_over = true;
    const std::vector<RoutedShard> routed = routing.Take(table, Incarnation(0));
    REQUIRE(routed.size() == 2);
    CHECK(routed[1].shard == kSecond);
    CHECK(routed[1].role.role == ShardRole::kReplica);
    CHECK(routed[1].role.primary == kOther.node);
    CHECK(routed[1].role.followers.empty());
    CHECK_FALSE(routed[1].role.hands_over);
  }
  SECTION("in this incarnation only") {
    const FollowerKey earlier{kSelf.node, Incarnation(2)};
    CHECK(routing.Take(TableOf(2, earlier, earlier), Incarnation(0)).empty());
  }
  SECTION("and nothing where the table names a server that it does not list") {
    table.shards[0].primary.reset();
    CHECK(routing.Take(table, Incarnation(0)).empty());
  }
}

TEST_CASE("JobRouting: tables count by their generation", "[server][core]") {
  JobRouting routing(kSelf);
  CHECK(routing.IsNewer(Generation(1)));
  routing.Take(TableOf(4, kSelf, kOther), Incarnation(0));
  CHECK(routing.generation() == Generation(4));
  CHECK_FALSE(routing.IsNewer(Generation(4)));
  CHECK(routing.IsNewer(Generation(5)));
}

TEST_CASE("JobRouting: a timeline begins with a table, not with a membership", "[server][core]") {
  JobRouting routing(kSelf);
  CHECK(routing.timeline() == 0);
  routing.Take(TableOf(1, kSelf, kOther), Incarnation(7));
  CHECK(routing.timeline() == 7);
}

TEST_CASE("JobRouting: a read lease never ends earlier than it was told", "[server][core]") {
  JobRouting routing(kSelf);
  const Instant now;
  CHECK_FALSE(routing.HasReadLease(now));
  routing.SetReadLease(now + absl::Seconds(2));
  routing.SetReadLease(now + absl::Seconds(1));
  CHECK(routing.HasReadLease(now + absl::Seconds(1)));
  CHECK_FALSE(routing.HasReadLease(now + absl::Seconds(2)));
}

TEST_CASE("JobRouting: a job begins anew if all of its shards do", "[server][core]") {
  RoutingTable table = TableOf(6, kSelf, kOther, Term(6));
  CHECK(AllBeginAnew(table, Term(6)));
  CHECK_FALSE(AllBeginAnew(table, Term(0)));
  table.shards[1].term = Term(5);
  CHECK_FALSE(AllBeginAnew(table, Term(6)));
}

}  // namespace
}  // namespace capstan::server::job_routing_test
