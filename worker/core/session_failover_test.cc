// Tests of the session when servers die, primaries change or acknowledgements wait for iterations.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {
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
struct Story {
  explicit Story(PushPullSession::Options options = {}) : session(options) {
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
  Story story(kIterations);
  story.Push(1, 0, 0);
  story.Push(2, 0, 1);
  const auto sent = story.Sent();
  REQUIRE(sent.size() == 4);  // Two operations, two servers.
  CHECK(sent[2].shards[0].sequence == Sequence(2));
  CHECK(sent[2].shards[0].sequence_low_water == Sequence(1));
  // They are acknowledged in any order.
  story.Answer(sent[2]);
  story.Answer(sent[3]);
  const auto ended = story.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].op == OpId(2));
  story.Push(3, 1);
  CHECK(story.Sent()[0].shards[0].sequence_low_water == Sequence(1));  // Still unanswered.
}

TEST_CASE("Session: where each push is acknowledged, one of a shard is in flight",
          "[worker][core]") {
  Story story;
  story.Push(1, 0);
  story.Push(2, 1);
  const auto first = story.Sent();
  REQUIRE(first.size() == 2);
  CHECK(first[0].op == OpId(1));
  CHECK(first[1].op == OpId(1));
  story.Answer(first[0]);
  const auto second = story.Sent();
  REQUIRE(second.size() == 1);
  CHECK(second[0].op == OpId(2));
}

TEST_CASE("Session: a pull goes beside pushes whose acknowledgements wait, never before them",
          "[worker][core]") {
  Story story(kIterations);
  story.Push(1, 0, 0, /*held=*/true);
  story.Pull(2, 1);
  CHECK(story.Sent().empty());
  story.session.Release(OpId(1), TableId(0), 8, story.now, &story.actions);
  const auto part = story.Sent();  // Shards 1 and 2; shard 0 of alpha is still held.
  REQUIRE(part.size() == 3);
  CHECK(part[0].request.kind == OpKind::kPush);
  CHECK(part[1].request.kind == OpKind::kPush);
  CHECK(part[2].request.kind == OpKind::kPull);
  CHECK(part[2].server == 1);
  story.session.Release(OpId(1), TableId(0), 0, story.now, &story.actions);
  const auto rest = story.Sent();
  REQUIRE(rest.size() == 2);
  CHECK(ShardsOf(rest[0]) == std::vector<int>{0});
  CHECK(rest[1].request.kind == OpKind::kPull);
  CHECK(ShardsOf(rest[1]) == std::vector<int>{0, 1});
}

TEST_CASE("Session: the wait that is shown is the one that knows for whom", "[worker][core]") {
  Story story(kIterations);
  story.Push(1, 4);
  story.Pull(2, 5);
  const auto sent = story.Sent();
  const Waiting waiting{
      .shard = {TableId(0), ShardId(2)}, .iteration = Iteration(4), .ranks = {}, .slots = {1}};
  for (const SendMessage& m : sent) {
    if (m.request.kind != OpKind::kPull || m.server != 1) continue;
    story.Answer(m, {.outcome = ShardReply::Outcome::kNotReady}, {waiting});
  }
  const SessionWait wait = story.session.CurrentWait(story.now);
  CHECK(wait.request.kind == OpKind::kPull);
  CHECK(wait.waiting_for == std::vector<Waiting>{waiting});
}

TEST_CASE("Session: a push that waits for other workers is not taken for a silent server",
          "[worker][core]") {
  PushPullSession::Options options = kIterations;
  options.silence_max = absl::Seconds(10);
  options.wait_max = absl::Seconds(60);
  Story story(options);
  story.Push(1, 0);
  story.Wait(absl::Seconds(59));
  CHECK(story.Ended().empty());
  story.Wait(absl::Seconds(1));
  CHECK(story.Ended()[0].status.code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("Session: an unacknowledged push is repeated with its ids at the new primary",
          "[worker][core]") {
  Story story(kIterations);
  story.Push(1, 0);
  const auto sent = story.Sent();
  story.Route(BetaLost(2));
  const auto again = story.Sent();  // Alpha's chunk is another now: all of it is sent again.
  REQUIRE(again.size() == 1);
  CHECK(again[0].server == 0);
  CHECK(ShardsOf(again[0]) == std::vector<int>{0, 1, 2});
  CHECK(again[0].shards[2].sequence == Sequence(1));
  CHECK_FALSE(story.session.Expects(sent[1].message));
  CHECK(story.Answer(again[0]));
  CHECK(story.Ended().size() == 1);
}

TEST_CASE("Session: a new table that changes nothing for a chunk leaves its messages in flight",
          "[worker][core]") {
  Story story(kIterations);
  story.Push(1, 0);
  const auto sent = story.Sent();
  Routing table = TwoServers(2);
  SECTION("a replica was added") {}
  SECTION("beta alone has a new term") { table.shards[2].term = Term(2); }
  SECTION("beta alone was restarted") { table.incarnations[1] = Incarnation(9); }
  story.Route(table);
  CHECK(story.session.Expects(sent[0].message));
  const auto again = story.Sent();
  const bool beta_changed = !story.session.Expects(sent[1].message);
  REQUIRE(again.size() == (beta_changed ? 1 : 0));
  story.Answer(sent[0]);
  story.Answer(beta_changed ? again[0] : sent[1]);
  CHECK(story.Ended().size() == 1);
}

TEST_CASE("Session: a message of an older table that is refused for it is sent again at once",
          "[worker][core]") {
  Story story;
  story.Push(1, 0);
  const auto sent = story.Sent();
  story.Route(TwoServers(2));
  CHECK(story.Sent().empty());
  story.Refuse(sent[0], absl::FailedPreconditionError("generation 1, mine is 2"));
  const auto again = story.Sent();
  REQUIRE(again.size() == 1);
  CHECK(again[0].generation == Generation(2));
  CHECK(again[0].shards[0].sequence == Sequence(1));
  CHECK_FALSE(story.session.needs_routing());
}

TEST_CASE("Session: what an unfinished pull read from a deposed primary is read again, whole",
          "[worker][core]") {
  Story story;
  story.Pull(1, 4);
  const auto sent = story.Sent();
  story.Answer(sent[1], {.version = Version(9), .staleness = 3});
  story.Route(BetaLost(2));
  const auto again = story.Sent();
  REQUIRE(again.size() == 1);
  CHECK(ShardsOf(again[0]) == std::vector<int>{0, 1, 2});
  CHECK(again[0].shards[2].held_version == -1);
  story.Answer(again[0], {.version = Version(10), .staleness = 1});
  const auto ended = story.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].versions.at(TableId(0)) == Version(10));  // The second reading alone counts.
  CHECK(ended[0].staleness == 1);
}

TEST_CASE("Session: what an unfinished pull read from a primary that stays is not read again",
          "[worker][core]") {
  Story story;
  story.Pull(1, 4);
  const auto sent = story.Sent();
  story.Answer(sent[0], {.version = Version(9)});
  story.Refuse(sent[1], kGone);
  story.Route(BetaLost(2));
  const auto again = story.Sent();
  REQUIRE(again.size() == 1);
  CHECK(ShardsOf(again[0]) == std::vector<int>{2});
  story.Answer(again[0], {.version = Version(9)});
  CHECK(story.Ended().size() == 1);
}

TEST_CASE("Session: a server that is away is asked again after 20 ms, then at most every 200 ms",
          "[worker][core]") {
  const auto code = GENERATE(absl::StatusCode::kUnavailable, absl::StatusCode::kNotFound);
  Story story(kIterations);
  story.Push(1, 0, 0);
  story.Push(2, 0, 1);
  auto sent = story.Sent();
  story.Answer(sent[0]);
  story.Answer(sent[2]);
  sent = {sent[1], sent[3]};  // Both go to beta: they fail together and back off once.
  for (const int expected : {20, 40, 80, 160, 200, 200}) {
    for (const SendMessage& m : sent) story.Refuse(m, absl::Status(code, "gone"));
    CHECK(story.Sent().empty());
    story.Wait(absl::Milliseconds(expected - 1));
    CHECK(story.Sent().empty());
    story.Wait(absl::Milliseconds(1));
    sent = story.Sent();
    REQUIRE(sent.size() == 2);
  }
  for (const SendMessage& m : sent) story.Answer(m);
  CHECK(story.Ended().size() == 2);
}

TEST_CASE("Session: a new table ends the back-off", "[worker][core]") {
  Story story;
  story.Push(1, 0);
  auto sent = story.Sent();
  for (int i = 0; i < 5; ++i) {
    story.Refuse(sent.back(), kGone);
    story.Wait(absl::Milliseconds(200));
    sent = story.Sent();
  }
  story.Refuse(sent.back(), kGone);
  story.Route(BetaLost(2));
  CHECK(story.Sent().size() == 1);
}

TEST_CASE("Session: while the scheduler sends no table, servers are asked in turn",
          "[worker][core]") {
  Story story;
  story.Push(1, 0);
  const auto sent = story.Sent();
  story.Answer(sent[0]);
  story.Refuse(sent[1], kGone);
  CHECK(story.actions.need_routing);
  story.Wait(absl::Milliseconds(499));
  CHECK(story.actions.ask_routing.empty());
  story.Wait(absl::Milliseconds(1));
  story.Wait(absl::Milliseconds(500));
  CHECK(story.actions.ask_routing == std::vector<int>{0, 1});  // The unreachable one is last.
  story.Route(BetaLost(2));
  story.Answer(story.Sent().back());
  story.Wait(absl::Seconds(10));
  CHECK(story.actions.ask_routing.size() == 2);
}

TEST_CASE("Session: a server that knows a newer table is asked for it first", "[worker][core]") {
  Story story;
  story.Push(1, 0);
  const auto sent = story.Sent();
  story.Refuse(sent[1], absl::FailedPreconditionError("generation 1, mine is 2"));
  story.Wait(absl::Milliseconds(500));
  CHECK(story.actions.ask_routing == std::vector<int>{1});
}

TEST_CASE("Session: a server that answers again ends the need for a table", "[worker][core]") {
  Story story;
  story.Push(1, 0);
  const auto sent = story.Sent();
  story.Answer(sent[0]);
  story.Refuse(sent[1], kGone);
  CHECK(story.session.needs_routing());
  story.Wait(absl::Milliseconds(20));
  story.Answer(story.Sent()[0]);
  CHECK_FALSE(story.session.needs_routing());
}

TEST_CASE("Session: a pull tells how far it has come, and that it begins anew for some of it",
          "[worker][core]") {
  Story story({.chunk_bytes_min = 32, .chunk_bytes_max = 32});  // One message per shard.
  story.Pull(1, 0);
  const std::vector<SendMessage> sent = story.Sent();
  REQUIRE(sent.size() == 3);
  const auto arrived = [&] { return story.session.ProgressOf(OpId(1), TableId(0)).arrived_end; };
  story.Answer(sent[1]);
  CHECK(arrived() == 0);  // The shard before it is missing.
  story.Answer(sent[0]);
  CHECK(arrived() == 16);
  CHECK(story.session.ProgressOf(OpId(1), TableId(1)).arrived_end == 0);
  CHECK(story.session.ProgressOf(OpId(2), TableId(0)).arrived_end == 0);
  SECTION("what is past has no values") {
    story.Answer(sent[2], {.outcome = ShardReply::Outcome::kPast});
    CHECK(story.Ended()[0].status.code() == absl::StatusCode::kOutOfRange);
  }
  SECTION("another primary of what is missing changes nothing") {
    story.Route(BetaLost(2));
    CHECK(arrived() == 16);
    CHECK_FALSE(story.session.ProgressOf(OpId(1), TableId(0)).reread);
    for (const SendMessage& message : story.Sent()) story.Answer(message);
    CHECK_FALSE(story.Ended()[0].reread);
  }
  SECTION("another primary of what has arrived") {
    Routing routing = TwoServers(2);
    routing.shards[1].term = Term(2);
    story.Route(routing);
    CHECK(arrived() == 8);
    CHECK(story.session.ProgressOf(OpId(1), TableId(0)).reread);
    for (const SendMessage& message : story.Sent()) story.Answer(message);
    CHECK(arrived() == 16);
    CHECK(story.session.ProgressOf(OpId(1), TableId(0)).reread);
    story.Answer(sent[2]);
    CHECK(story.Ended()[0].reread);
  }
}

TEST_CASE("Session: a server that owes an answer is asked whether it is there, and named if not",
          "[worker][core]") {
  Story story;
  story.Pull(1, 0);
  const auto sent = story.Sent();
  story.Answer(sent[0]);
  CHECK(story.session.NextDeadline() == story.now + absl::Seconds(1));
  story.Wait(absl::Seconds(1));
  CHECK(story.Asked() == std::vector<int>{1});  // Alpha owes nothing.
  story.Wait(absl::Seconds(1));
  CHECK(story.Asked() == std::vector<int>{1});
  CHECK(story.session.CurrentWait(story.now).silent.empty());
  story.Wait(absl::Seconds(1));
  CHECK(story.session.CurrentWait(story.now).silent == std::vector<std::string>{"beta"});

  SECTION("an answer to the question, while the pull waits for other workers") {
    story.session.Heard("beta", story.now);
  }
  SECTION("an answer to the pull, whatever it says") {
    story.Refuse(sent[1], absl::NotFoundError("no such job"));
  }
  SECTION("another process of that name") {
    Routing routing = TwoServers(2);
    routing.incarnations = {Incarnation(1), Incarnation(3)};
    story.session.SetRouting(routing, story.now, &story.actions);
  }
  CHECK(story.session.CurrentWait(story.now).silent.empty());
}

TEST_CASE("Session: whoever waits for nothing needs no routing table", "[worker][core]") {
  Story story;
  story.Pull(1, 0);
  story.Refuse(story.Sent()[1], kGone);
  CHECK(story.session.needs_routing());
  story.session.CancelPull(OpId(1), story.now, &story.actions);
  CHECK_FALSE(story.session.needs_routing());  // An idle task would ask again and again.
  story.Pull(2, 0);
  for (const SendMessage& message : story.Sent()) story.Refuse(message, kGone);
  CHECK(story.session.needs_routing());
}

TEST_CASE("Session: a call that was lost on the way is no answer", "[worker][core]") {
  Story story;
  story.Pull(1, 0);
  std::vector<SendMessage> sent = story.Sent();
  story.Answer(sent[0]);
  sent.erase(sent.begin());
  for (int i = 0; i < 40; ++i) {
    for (const SendMessage& message : sent) {
      story.Refuse(message, absl::UnavailableError("connection refused"));
    }
    story.Wait(absl::Milliseconds(200));
    sent = story.Sent();
  }
  CHECK(story.session.CurrentWait(story.now).silent == std::vector<std::string>{"beta"});
  REQUIRE_FALSE(sent.empty());
  story.Answer(sent[0]);
  CHECK(story.Ended().size() == 1);
  story.Pull(2, 1);
  CHECK(story.session.CurrentWait(story.now).silent.empty());
}

}  // namespace
}  // namespace capstan::worker
