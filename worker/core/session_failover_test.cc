// Tests of the session when servers die, primaries change or acknowledgements wait for iterations.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker::session_failover_test {
namespace {

// Two servers, three shards: 0 and 1 on alpha, 2 on beta, all of term 1.
Routing TwoServers(uint64_t generation) {
  Routing routing{.generation = Generation(generation),
                  .servers = {"alpha", "beta"},
                  .incarnations = {Incarnation(1), Incarnation(2)}};
  for (int i = 0; i < 3; ++i) {
    routing.shards.push_back({.key = {TableId(0), ShardId(i)},
                              .elements = {i * 8, (i + 1) * 8},
                              .server = i < 2 ? 0 : 1,
                              .term = Term(1)});
  }
  return routing;
}

// Shard 2 is on alpha, which this table makes its primary.
Routing BetaLost(uint64_t generation) {
  Routing routing = TwoServers(generation);
  routing.shards[2].server = 0;
  routing.shards[2].term = Term(generation);
  return routing;
}

std::vector<int> ShardsOf(const SendMessage& message) {
  std::vector<int> shards;
  for (const auto& shard : message.shards) shards.push_back(shard.key.shard.value());
  return shards;
}

// A session with a clock, the messages that it sent and the operations that ended.
struct Fixture {
  explicit Fixture(PushPullSession::Options options = {}) : session(options) {
    session.SetRouting(TwoServers(1), now, &actions);
  }
  void Push(uint64_t op, int64_t iteration, int64_t slot = 0, bool held = false) {
    REQUIRE_OK(session.Start(OpId(op),
                             {.kind = OpKind::kPush,
                              .iteration = Iteration(iteration),
                              .slots = {slot, slot + 1},
                              .held = held},
                             now, &actions));
  }
  void Pull(uint64_t op, int64_t iteration) {
    REQUIRE_OK(session.Start(OpId(op), {.iteration = Iteration(iteration)}, now, &actions));
  }
  void Route(const Routing& routing) { session.SetRouting(routing, now, &actions); }
  std::vector<SendMessage> Sent() { return std::exchange(actions.send, {}); }
  std::vector<int> Asked() { return std::exchange(actions.ask_routing, {}); }
  std::vector<OpDone> Ended() { return std::exchange(actions.done, {}); }
  bool Answer(const SendMessage& m, ShardReply reply = {}, std::vector<Waiting> waiting = {}) {
    return session.OnReply(m.message, absl::OkStatus(),
                           std::vector<ShardReply>(m.shards.size(), reply), waiting, now, &actions);
  }
  bool Refuse(const SendMessage& m, const absl::Status& status) {
    return session.OnReply(m.message, status, {}, {}, now, &actions);
  }
  void Wait(absl::Duration time) {
    now = now + time;
    session.Tick(now, &actions);
  }

  Instant now;
  SessionActions actions;
  PushPullSession session;
};

const PushPullSession::Options kIterations{.acknowledgement = Acknowledgement::kWholeIteration};
const absl::Status kGone = absl::UnavailableError("connection refused");

TEST_CASE("Session: pushes of several slots are in flight at once where acknowledgements wait",
          "[worker][core]") {
  Fixture fixture(kIterations);
  fixture.Push(1, 0, 0);
  fixture.Push(2, 0, 1);
  const auto sent = fixture.Sent();
  REQUIRE(sent.size() == 4);  // Two operations, two servers.
  CHECK(sent[2].shards[0].sequence == Sequence(2));
  CHECK(sent[2].shards[0].sequence_low_water == Sequence(1));
  // They are acknowledged in any order.
  fixture.Answer(sent[2]);
  fixture.Answer(sent[3]);
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].op == OpId(2));
  fixture.Push(3, 1);
  CHECK(fixture.Sent()[0].shards[0].sequence_low_water == Sequence(1));  // Still unanswered.
}

TEST_CASE("Session: where each push is acknowledged, one of a shard is in flight",
          "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  fixture.Push(2, 1);
  const auto first = fixture.Sent();
  REQUIRE(first.size() == 2);
  CHECK(first[0].op == OpId(1));
  CHECK(first[1].op == OpId(1));
  fixture.Answer(first[0]);
  const auto second = fixture.Sent();
  REQUIRE(second.size() == 1);
  CHECK(second[0].op == OpId(2));
}

TEST_CASE("Session: a pull goes beside pushes whose acknowledgements wait, never before them",
          "[worker][core]") {
  Fixture fixture(kIterations);
  fixture.Push(1, 0, 0, /*held=*/true);
  fixture.Pull(2, 1);
  CHECK(fixture.Sent().empty());
  fixture.session.Release(OpId(1), TableId(0), 8, fixture.now, &fixture.actions);
  const auto part = fixture.Sent();  // Shards 1 and 2; shard 0 of alpha is still held.
  REQUIRE(part.size() == 3);
  CHECK(part[0].request.kind == OpKind::kPush);
  CHECK(part[1].request.kind == OpKind::kPush);
  CHECK(part[2].request.kind == OpKind::kPull);
  CHECK(part[2].server == 1);
  fixture.session.Release(OpId(1), TableId(0), 0, fixture.now, &fixture.actions);
  const auto rest = fixture.Sent();
  REQUIRE(rest.size() == 2);
  CHECK(ShardsOf(rest[0]) == std::vector<int>{0});
  CHECK(rest[1].request.kind == OpKind::kPull);
  CHECK(ShardsOf(rest[1]) == std::vector<int>{0, 1});
}

TEST_CASE("Session: the wait that is shown is the one that knows for whom", "[worker][core]") {
  Fixture fixture(kIterations);
  fixture.Push(1, 4);
  fixture.Pull(2, 5);
  const auto sent = fixture.Sent();
  const Waiting waiting{
      .shard = {TableId(0), ShardId(2)}, .iteration = Iteration(4), .ranks = {}, .slots = {1}};
  for (const SendMessage& m : sent) {
    if (m.request.kind != OpKind::kPull || m.server != 1) continue;
    fixture.Answer(m, {.outcome = ShardReply::Outcome::kNotReady}, {waiting});
  }
  const SessionWait wait = fixture.session.CurrentWait(fixture.now);
  CHECK(wait.request.kind == OpKind::kPull);
  CHECK(wait.waiting_on == std::vector<Waiting>{waiting});
}

TEST_CASE("Session: a push that waits for other workers is not taken for a silent server",
          "[worker][core]") {
  PushPullSession::Options options = kIterations;
  options.silence_max = absl::Seconds(10);
  options.wait_max = absl::Seconds(60);
  Fixture fixture(options);
  fixture.Push(1, 0);
  fixture.Wait(absl::Seconds(59));
  CHECK(fixture.Ended().empty());
  fixture.Wait(absl::Seconds(1));
  CHECK(fixture.Ended()[0].status.code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("Session: an unacknowledged push is repeated with its ids at the new primary",
          "[worker][core]") {
  Fixture fixture(kIterations);
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Route(BetaLost(2));
  const auto again = fixture.Sent();  // Alpha's chunk is another now: all of it is sent again.
  REQUIRE(again.size() == 1);
  CHECK(again[0].server == 0);
  CHECK(ShardsOf(again[0]) == std::vector<int>{0, 1, 2});
  CHECK(again[0].shards[2].sequence == Sequence(1));
  CHECK_FALSE(fixture.session.Expects(sent[1].message));
  CHECK(fixture.Answer(again[0]));
  CHECK(fixture.Ended().size() == 1);
}

TEST_CASE("Session: a new table that changes nothing for a chunk leaves its messages in flight",
          "[worker][core]") {
  Fixture fixture(kIterations);
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  Routing table = TwoServers(2);
  SECTION("a replica was added") {}
  SECTION("beta alone has a new term") { table.shards[2].term = Term(2); }
  SECTION("beta alone was restarted") { table.incarnations[1] = Incarnation(9); }
  fixture.Route(table);
  CHECK(fixture.session.Expects(sent[0].message));
  const auto again = fixture.Sent();
  const bool beta_changed = !fixture.session.Expects(sent[1].message);
  REQUIRE(again.size() == (beta_changed ? 1 : 0));
  fixture.Answer(sent[0]);
  fixture.Answer(beta_changed ? again[0] : sent[1]);
  CHECK(fixture.Ended().size() == 1);
}

TEST_CASE("Session: a message of an older table that is refused for it is sent again at once",
          "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Route(TwoServers(2));
  CHECK(fixture.Sent().empty());
  fixture.Refuse(sent[0], absl::FailedPreconditionError("generation 1, mine is 2"));
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 1);
  CHECK(again[0].generation == Generation(2));
  CHECK(again[0].shards[0].sequence == Sequence(1));
  CHECK_FALSE(fixture.session.needs_routing());
}

TEST_CASE("Session: what an unfinished pull read from a deposed primary is read again, whole",
          "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 4);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[1], {.version = Version(9), .staleness = 3});
  fixture.Route(BetaLost(2));
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 1);
  CHECK(ShardsOf(again[0]) == std::vector<int>{0, 1, 2});
  CHECK(again[0].shards[2].held_version == -1);
  fixture.Answer(again[0], {.version = Version(10), .staleness = 1});
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].versions.at(TableId(0)) == Version(10));  // The second reading alone counts.
  CHECK(ended[0].staleness == 1);
}

TEST_CASE("Session: what an unfinished pull read from a primary that stays is not read again",
          "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 4);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0], {.version = Version(9)});
  fixture.Refuse(sent[1], kGone);
  fixture.Route(BetaLost(2));
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 1);
  CHECK(ShardsOf(again[0]) == std::vector<int>{2});
  fixture.Answer(again[0], {.version = Version(9)});
  CHECK(fixture.Ended().size() == 1);
}

TEST_CASE("Session: a server that is away is asked again after 20 ms, then at most every 200 ms",
          "[worker][core]") {
  const auto code = GENERATE(absl::StatusCode::kUnavailable, absl::StatusCode::kNotFound);
  Fixture fixture(kIterations);
  fixture.Push(1, 0, 0);
  fixture.Push(2, 0, 1);
  auto sent = fixture.Sent();
  fixture.Answer(sent[0]);
  fixture.Answer(sent[2]);
  sent = {sent[1], sent[3]};  // Both go to beta: they fail together and back off once.
  for (const int expected : {20, 40, 80, 160, 200, 200}) {
    for (const SendMessage& m : sent) fixture.Refuse(m, absl::Status(code, "gone"));
    CHECK(fixture.Sent().empty());
    fixture.Wait(absl::Milliseconds(expected - 1));
    CHECK(fixture.Sent().empty());
    fixture.Wait(absl::Milliseconds(1));
    sent = fixture.Sent();
    REQUIRE(sent.size() == 2);
  }
  for (const SendMessage& m : sent) fixture.Answer(m);
  CHECK(fixture.Ended().size() == 2);
}

TEST_CASE("Session: a new table ends the back-off", "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  auto sent = fixture.Sent();
  for (int i = 0; i < 5; ++i) {
    fixture.Refuse(sent.back(), kGone);
    fixture.Wait(absl::Milliseconds(200));
    sent = fixture.Sent();
  }
  fixture.Refuse(sent.back(), kGone);
  fixture.Route(BetaLost(2));
  CHECK(fixture.Sent().size() == 1);
}

TEST_CASE("Session: while the scheduler sends no table, servers are asked in turn",
          "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0]);
  fixture.Refuse(sent[1], kGone);
  CHECK(fixture.actions.need_routing);
  fixture.Wait(absl::Milliseconds(499));
  CHECK(fixture.actions.ask_routing.empty());
  fixture.Wait(absl::Milliseconds(1));
  fixture.Wait(absl::Milliseconds(500));
  CHECK(fixture.actions.ask_routing == std::vector<int>{0, 1});  // The unreachable one is last.
  fixture.Route(BetaLost(2));
  fixture.Answer(fixture.Sent().back());
  fixture.Wait(absl::Seconds(10));
  CHECK(fixture.actions.ask_routing.size() == 2);
}

TEST_CASE("Session: a server that knows a newer table is asked for it first", "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Refuse(sent[1], absl::FailedPreconditionError("generation 1, mine is 2"));
  fixture.Wait(absl::Milliseconds(500));
  CHECK(fixture.actions.ask_routing == std::vector<int>{1});
}

TEST_CASE("Session: a server that answers again ends the need for a table", "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0]);
  fixture.Refuse(sent[1], kGone);
  CHECK(fixture.session.needs_routing());
  fixture.Wait(absl::Milliseconds(20));
  fixture.Answer(fixture.Sent()[0]);
  CHECK_FALSE(fixture.session.needs_routing());
}

TEST_CASE("Session: a pull tells how far it has come, and that it begins anew for some of it",
          "[worker][core]") {
  Fixture fixture({.chunk_bytes_min = 32, .chunk_bytes_max = 32});  // One message per shard.
  fixture.Pull(1, 0);
  const std::vector<SendMessage> sent = fixture.Sent();
  REQUIRE(sent.size() == 3);
  const auto arrived = [&] { return fixture.session.ProgressOf(OpId(1), TableId(0)).arrived_end; };
  fixture.Answer(sent[1]);
  CHECK(arrived() == 0);  // The shard before it is missing.
  fixture.Answer(sent[0]);
  CHECK(arrived() == 16);
  CHECK(fixture.session.ProgressOf(OpId(1), TableId(1)).arrived_end == 0);
  CHECK(fixture.session.ProgressOf(OpId(2), TableId(0)).arrived_end == 0);
  SECTION("what is past has no values") {
    fixture.Answer(sent[2], {.outcome = ShardReply::Outcome::kPast});
    CHECK(fixture.Ended()[0].status.code() == absl::StatusCode::kOutOfRange);
  }
  SECTION("another primary of what is missing changes nothing") {
    fixture.Route(BetaLost(2));
    CHECK(arrived() == 16);
    CHECK_FALSE(fixture.session.ProgressOf(OpId(1), TableId(0)).reread);
    for (const SendMessage& message : fixture.Sent()) fixture.Answer(message);
    CHECK_FALSE(fixture.Ended()[0].reread);
  }
  SECTION("another primary of what has arrived") {
    Routing routing = TwoServers(2);
    routing.shards[1].term = Term(2);
    fixture.Route(routing);
    CHECK(arrived() == 8);
    CHECK(fixture.session.ProgressOf(OpId(1), TableId(0)).reread);
    for (const SendMessage& message : fixture.Sent()) fixture.Answer(message);
    CHECK(arrived() == 16);
    CHECK(fixture.session.ProgressOf(OpId(1), TableId(0)).reread);
    fixture.Answer(sent[2]);
    CHECK(fixture.Ended()[0].reread);
  }
}

TEST_CASE("Session: a server that owes an answer is asked whether it is there, and named if not",
          "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 0);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0]);
  CHECK(fixture.session.NextDeadline() == fixture.now + absl::Seconds(1));
  fixture.Wait(absl::Seconds(1));
  CHECK(fixture.Asked() == std::vector<int>{1});  // Alpha owes nothing.
  fixture.Wait(absl::Seconds(1));
  CHECK(fixture.Asked() == std::vector<int>{1});
  CHECK(fixture.session.CurrentWait(fixture.now).silent.empty());
  fixture.Wait(absl::Seconds(1));
  CHECK(fixture.session.CurrentWait(fixture.now).silent == std::vector<std::string>{"beta"});

  SECTION("an answer to the question, while the pull waits for other workers") {
    fixture.session.Heard("beta", fixture.now);
  }
  SECTION("an answer to the pull, whatever it says") {
    fixture.Refuse(sent[1], absl::NotFoundError("no such job"));
  }
  SECTION("another process of that name") {
    Routing routing = TwoServers(2);
    routing.incarnations = {Incarnation(1), Incarnation(3)};
    fixture.session.SetRouting(routing, fixture.now, &fixture.actions);
  }
  CHECK(fixture.session.CurrentWait(fixture.now).silent.empty());
}

TEST_CASE("Session: whoever waits for nothing needs no routing table", "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 0);
  fixture.Refuse(fixture.Sent()[1], kGone);
  CHECK(fixture.session.needs_routing());
  fixture.session.CancelPull(OpId(1), fixture.now, &fixture.actions);
  CHECK_FALSE(fixture.session.needs_routing());  // An idle task would ask again and again.
  fixture.Pull(2, 0);
  for (const SendMessage& message : fixture.Sent()) fixture.Refuse(message, kGone);
  CHECK(fixture.session.needs_routing());
}

TEST_CASE("Session: a call that was lost on the way is no answer", "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 0);
  std::vector<SendMessage> sent = fixture.Sent();
  fixture.Answer(sent[0]);
  sent.erase(sent.begin());
  for (int i = 0; i < 40; ++i) {
    for (const SendMessage& message : sent) {
      fixture.Refuse(message, absl::UnavailableError("connection refused"));
    }
    fixture.Wait(absl::Milliseconds(200));
    sent = fixture.Sent();
  }
  CHECK(fixture.session.CurrentWait(fixture.now).silent == std::vector<std::string>{"beta"});
  REQUIRE_FALSE(sent.empty());
  fixture.Answer(sent[0]);
  CHECK(fixture.Ended().size() == 1);
  fixture.Pull(2, 1);
  CHECK(fixture.session.CurrentWait(fixture.now).silent.empty());
}

}  // namespace
}  // namespace capstan::worker::session_failover_test
