// Tests of the session with operations that cover one table each.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker::session_tables_test {
namespace {

// Two servers, two tables: table 0 has shard 0 on alpha and shard 1 on beta; table 1 one shard on
// `last`.
Routing TwoTables(uint64_t generation, int last = 1) {
  Routing routing{.generation = Generation(generation), .servers = {"alpha", "beta"}};
  const auto add = [&routing](int table, int shard, int server, uint64_t term) {
    routing.shards.push_back({.key = {TableId(table), ShardId(shard)},
                              .elements = {shard * 8, (shard + 1) * 8},
                              .server = server,
                              .term = Term(term)});
  };
  add(0, 0, 0, 1);
  add(0, 1, 1, 1);
  add(1, 0, last, generation);
  return routing;
}

struct Fixture {
  Fixture() : session({.table_chunks = true, .pulls_have_own_arrays = true}) {
    session.SetRouting(TwoTables(1), now, &actions);
  }
  void Start(uint64_t op, OpKind kind, std::optional<int> table) {
    OpRequest request{.kind = kind};
    if (table) request.table = TableId(*table);
    REQUIRE_OK(session.Start(OpId(op), request, now, &actions));
  }
  std::vector<SendMessage> Sent() { return std::exchange(actions.send, {}); }
  std::vector<OpDone> Ended() { return std::exchange(actions.done, {}); }
  void Answer(const SendMessage& m, ShardReply reply = {}) {
    session.OnReply(m.message, absl::OkStatus(), std::vector<ShardReply>(m.shards.size(), reply),
                    {}, now, &actions);
  }

  Instant now;
  SessionActions actions;
  PushPullSession session;
};

TEST_CASE("Session: an operation on one table numbers and awaits its shards alone",
          "[worker][core]") {
  Fixture fixture;
  fixture.Start(1, OpKind::kPush, 1);
  const auto first = fixture.Sent();
  REQUIRE(first.size() == 1);
  REQUIRE(first[0].shards.size() == 1);
  CHECK(first[0].shards[0].key == ShardKey{TableId(1), ShardId(0)});
  CHECK(first[0].shards[0].sequence == Sequence(1));
  fixture.Answer(first[0]);
  REQUIRE(fixture.Ended().size() == 1);
  fixture.Start(2, OpKind::kPush, std::nullopt);
  const auto all = fixture.Sent();
  REQUIRE(all.size() == 3);
  for (const SendMessage& message : all) {
    const bool second = message.shards[0].key.table == TableId(1);
    CHECK(message.shards[0].sequence == Sequence(second ? 2 : 1));
    CHECK(message.shards[0].sequence_low_water == message.shards[0].sequence);
  }
}

TEST_CASE("Session: a refused push does not hold the low-water mark of its shards",
          "[worker][core]") {
  Fixture fixture;
  fixture.Start(1, OpKind::kPush, 0);
  const auto refused = fixture.Sent();
  REQUIRE(refused.size() == 2);  // Beta's message is under way when alpha refuses.
  fixture.session.OnReply(refused[0].message, absl::ResourceExhaustedError("full"), {}, {},
                          fixture.now, &fixture.actions);
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(absl::IsResourceExhausted(ended[0].status));
  fixture.Start(2, OpKind::kPush, 0);
  const auto next = fixture.Sent();
  REQUIRE(next.size() == 2);
  for (const SendMessage& message : next) {
    CHECK(message.shards[0].sequence == Sequence(2));
    CHECK(message.shards[0].sequence_low_water == Sequence(2));
  }
}

TEST_CASE("Session: operations on one table do not wait for those on another", "[worker][core]") {
  Fixture fixture;
  fixture.Start(1, OpKind::kPush, 0);
  const auto pushes = fixture.Sent();
  REQUIRE(pushes.size() == 2);
  fixture.Start(2, OpKind::kPull, 1);  // On beta, which has not answered the push of table 0.
  const auto other = fixture.Sent();
  REQUIRE(other.size() == 1);
  fixture.Start(3, OpKind::kPull, 0);
  CHECK(fixture.Sent().empty());  // It reads what was pushed before it.
  fixture.Answer(other[0], {.version = Version(4)});
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].versions.size() == 1);
  CHECK(ended[0].versions.at(TableId(1)) == Version(4));
  fixture.Answer(pushes[0]);
  CHECK(fixture.Sent().size() == 1);
}

TEST_CASE("Session: pulls into arrays of their own ask for all values", "[worker][core]") {
  Fixture fixture;
  for (const uint64_t op : {1, 2}) {
    fixture.Start(op, OpKind::kPull, 1);
    const auto sent = fixture.Sent();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].shards[0].held_version == -1);
    fixture.Answer(sent[0], {.version = Version(4)});
  }
}

TEST_CASE("Session: another primary of one table leaves operations on others alone",
          "[worker][core]") {
  Fixture fixture;
  fixture.Start(1, OpKind::kPull, 0);
  fixture.Start(2, OpKind::kPush, 1);
  REQUIRE(fixture.Sent().size() == 3);
  fixture.session.SetRouting(TwoTables(2, /*last=*/0), fixture.now, &fixture.actions);
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 1);
  CHECK(again[0].op == OpId(2));
  CHECK(again[0].server == 0);
  CHECK(again[0].shards[0].sequence == Sequence(1));
}

TEST_CASE("Session: an operation says for whom it waits", "[worker][core]") {
  Fixture fixture;
  fixture.Start(1, OpKind::kPush, 1);
  fixture.now = fixture.now + absl::Seconds(2);
  CHECK(fixture.session.TextOf(OpId(1), fixture.now) ==
        "push of iteration 0 of table 1 has waited 2s for beta");
}

TEST_CASE("Session: an operation on a table that is not there is refused", "[worker][core]") {
  Fixture fixture;
  const absl::Status status =
      fixture.session.Start(OpId(1), {.table = TableId(7)}, fixture.now, &fixture.actions);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "pull: the job has no table 7");
}

}  // namespace
}  // namespace capstan::worker::session_tables_test
