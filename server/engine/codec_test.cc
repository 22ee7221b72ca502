#include "server/engine/codec.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "server/engine/testing/request_codec.h"

namespace capstan::server::codec_test {
namespace {

using absl::StatusCode;

constexpr ShardKey kKey{TableId(1), ShardId(42)};

TEST_CASE("Codec: a push survives the round trip", "[server]") {
  const PushHead push{.token = {},
                      .rank = Rank(4095),
                      .incarnation = Incarnation(UINT64_MAX),
                      .iteration = Iteration(INT64_MAX),
                      .slot_begin = 512,
                      .slot_end = 1024,
                      .sequence = Sequence(UINT64_MAX),
                      .sequence_low_water = Sequence(3)};
  v1::PushRequest request;
  const std::vector<float> values = {1.5f, -0.0f};
  EncodePush(kKey, push, values, &request);
  REQUIRE(request.shards_size() == 1);
  CHECK(request.shards(0).table() == 1);
  CHECK(request.shards(0).shard() == 42);
  CHECK(request.shards(0).values() == std::string("\0\0\xC0\x3F\0\0\0\x80", 8));
  const PushHead decoded = DecodePush(request, request.shards(0));
  CHECK(decoded == push);
}

TEST_CASE("Codec: a pull survives the round trip", "[server]") {
  PullHead pull{.token = {},
                .rank = Rank(7),
                .incarnation = Incarnation(9),
                .iteration = Iteration(11),
                .snapshot = false,
                .held_version = Version(GENERATE(-1, 0, 12)),
                .deadline = {}};
  pull.snapshot = GENERATE(false, true);
  v1::PullRequest request;
  EncodePull(kKey, pull, &request);
  REQUIRE_OK_AND_ASSIGN(const PullHead decoded, DecodePull(request, request.shards(0)));
  CHECK(decoded == pull);
}

TEST_CASE("Codec: every outcome of a push is told", "[server]") {
  const auto [outcome, told] = GENERATE(table<PushOutcome, v1::ShardPushResult::Outcome>(
      {{PushOutcome::kRecorded, v1::ShardPushResult::RECORDED},
       {PushOutcome::kDuplicate, v1::ShardPushResult::DUPLICATE},
       {PushOutcome::kLate, v1::ShardPushResult::LATE}}));
  v1::ShardPushResult result;
  EncodePushReply({.token = {}, .outcome = outcome, .version = Version(5)}, &result);
  CHECK(result.outcome() == told);
  CHECK(result.version() == 5);
}

TEST_CASE("Codec: every outcome of a pull is told", "[server]") {
  const auto [outcome, told] = GENERATE(table<PullOutcome, v1::ShardValues::Outcome>(
      {{PullOutcome::kValues, v1::ShardValues::VALUES},
       {PullOutcome::kUnchanged, v1::ShardValues::UNCHANGED},
       {PullOutcome::kNotReady, v1::ShardValues::NOT_READY},
       {PullOutcome::kPast, v1::ShardValues::PAST}}));
  v1::ShardValues result;
  EncodePullReply({.token = {},
                   .outcome = outcome,
                   .version = Version(5),
                   .staleness = 2,
                   .membership = Generation(7),
                   .waiting_on = {}},
                  &result);
  CHECK(result.outcome() == told);
  CHECK(result.version() == 5);
  CHECK(result.staleness() == 2);
  CHECK(result.membership() == 7);
}

TEST_CASE("Codec: whom a pull waits on is given by numbers", "[server]") {
  const WaitingOn waiting_on{
      .iteration = Iteration(6), .ranks = {Rank(0), Rank(3)}, .slots = {SlotId(1), SlotId(1023)}};
  v1::WaitingOn waiting;
  EncodeWaitingOn(kKey, waiting_on, &waiting);
  CHECK(waiting.table() == 1);
  CHECK(waiting.shard() == 42);
  CHECK(waiting.iteration() == 6);
  CHECK(absl::StrJoin(waiting.ranks(), " ") == "0 3");
  CHECK(absl::StrJoin(waiting.slots(), " ") == "1 1023");
}

TEST_CASE("Codec: a membership survives the round trip", "[server]") {
  const Membership membership{.generation = Generation(8),
                              .members = {{.rank = Rank(0),
                                           .incarnation = Incarnation(4),
                                           .active = true,
                                           .start_iteration = Iteration(17)},
                                          {.rank = Rank(5),
                                           .incarnation = Incarnation(9),
                                           .active = false,
                                           .start_iteration = Iteration(0)}}};
  REQUIRE_OK_AND_ASSIGN(const Membership decoded, DecodeMembership(EncodeMembership(membership)));
  CHECK(decoded == membership);
}

TEST_CASE("Codec: a routing table names servers by incarnation, and only those that it lists",
          "[server]") {
  v1::RoutingTable message;
  message.set_generation(5);
  v1::ServerAddress* server = message.add_servers();
  server->set_node_id("server-1");
  server->set_incarnation(3);
  v1::ShardRoute* route = message.add_shards();
  route->set_table(1);
  route->set_shard(2);
  route->set_element_begin(8);
  route->set_element_end(16);
  route->set_hands_over(true);
  route->add_replicas()->set_in_sync(true);
  route->add_replicas()->set_server(7);
  const RoutingTable table = DecodeRouting(message);
  const FollowerKey listed{"server-1", Incarnation(3)};
  CHECK(table.generation == Generation(5));
  REQUIRE(table.shards.size() == 1);
  CHECK(table.shards[0].shard == HeldShard{{TableId(1), ShardId(2)}, {8, 16}});
  CHECK(table.shards[0].term == Term(1));  // No term is named.
  CHECK(table.shards[0].primary == listed);
  REQUIRE(table.shards[0].replicas.size() == 1);
  CHECK(table.shards[0].replicas[0].key == listed);
  CHECK(table.shards[0].replicas[0].in_sync);
  CHECK(table.shards[0].hands_over);
  route->set_server(-1);
  CHECK_FALSE(DecodeRouting(message).shards[0].primary.has_value());
}

TEST_CASE("Codec: numbers that cannot be are refused by name", "[server]") {
  const auto invalid = StatusCode::kInvalidArgument;
  v1::Caller caller;
  CHECK_STATUS(CheckCaller(caller), invalid, "incarnation 0 of rank 0: expected 1 or more");
  caller.set_rank(4096);
  CHECK_STATUS(CheckCaller(caller), invalid, "rank 4096: expected 0 to 4095");
  caller.set_rank(-2);
  CHECK_STATUS(CheckCaller(caller), invalid, "rank -2");
  caller.set_rank(-1);
  REQUIRE_OK(CheckCaller(caller));

  v1::ShardPull pull;
  pull.set_value_type(static_cast<v1::ValueType>(7));
  CHECK_STATUS(DecodePull({}, pull), invalid,
               "value_type 7: expected FLOAT32, BFLOAT16 or FLOAT16");
  pull = {};
  pull.set_held_version(-2);
  CHECK_STATUS(DecodePull({}, pull), invalid, "held_version -2: expected -1 or more");

  v1::Membership membership;
  membership.add_members()->set_rank(1);
  CHECK_STATUS(DecodeMembership(membership), invalid, "member of rank 1: incarnation 0");
  membership.mutable_members(0)->set_incarnation(1);
  membership.mutable_members(0)->set_start_iteration(-1);
  CHECK_STATUS(DecodeMembership(membership), invalid, "start_iteration -1, expected 0 to");
  membership.mutable_members(0)->set_start_iteration(0);
  *membership.add_members() = membership.members(0);
  CHECK_STATUS(DecodeMembership(membership), invalid, "expected ascending ranks");
}

}  // namespace
}  // namespace capstan::server::codec_test
