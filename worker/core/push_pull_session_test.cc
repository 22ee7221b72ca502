#include "worker/core/push_pull_session.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::worker::push_pull_session_test {
namespace {

// Two servers, three shards: 0 and 1 on alpha, 2 on beta.
Routing TwoServers(uint64_t generation) {
  Routing routing;
  routing.generation = Generation(generation);
  routing.servers = {"alpha", "beta"};
  for (int i = 0; i < 3; ++i) {
    routing.shards.push_back({.key = {TableId(0), ShardId(i)},
                              .elements = {i * 8, (i + 1) * 8},
                              .server = i < 2 ? 0 : 1});
  }
  return routing;
}

// A session with a clock, the messages that it sent and the operations that ended.
struct Fixture {
  explicit Fixture(PushPullSession::Options options = {}) : session(options) {
    session.SetRouting(TwoServers(1), now, &actions);
  }
  void Push(uint64_t op, int64_t iteration) {
    REQUIRE_OK(session.Start(OpId(op), {.kind = OpKind::kPush, .iteration = Iteration(iteration)},
                             now, &actions));
  }
  void Pull(uint64_t op, int64_t iteration) {
    REQUIRE_OK(session.Start(OpId(op), {.kind = OpKind::kPull, .iteration = Iteration(iteration)},
                             now, &actions));
  }
  std::vector<SendMessage> Sent() { return std::exchange(actions.send, {}); }
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

TEST_CASE("Session: a push goes to every server once, and ends when all have answered",
          "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].shards.size() == 2);
  CHECK(sent[1].shards.size() == 1);
  CHECK(sent[0].shards[0].sequence == Sequence(1));
  fixture.Answer(sent[0]);
  CHECK(fixture.Ended().empty());
  fixture.Answer(sent[1]);
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].status.ok());
}

TEST_CASE("Session: a pull follows the acknowledgement of the push before it", "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto pushes = fixture.Sent();
  fixture.Pull(2, 1);
  CHECK(fixture.Sent().empty());
  fixture.Answer(pushes[1]);
  const auto pulls = fixture.Sent();
  REQUIRE(pulls.size() == 1);  // Only to the server that has answered.
  CHECK(pulls[0].request.kind == OpKind::kPull);
  CHECK(pulls[0].server == 1);
}

TEST_CASE("Session: where a pull's iteration says what it must see, it goes behind its push",
          "[worker][core]") {
  Fixture fixture({.pulls_behind_pushes = true});
  REQUIRE_OK(fixture.session.Start(OpId(1), {.kind = OpKind::kPush, .held = true}, fixture.now,
                                   &fixture.actions));
  fixture.Pull(2, 1);
  CHECK(fixture.Sent().empty());  // The pull never goes before the push.
  fixture.session.Release(OpId(1), TableId(0), 0, fixture.now, &fixture.actions);
  const auto sent = fixture.Sent();
  REQUIRE(sent.size() == 4);
  for (const int first : {0, 2}) {
    CHECK(sent[first].request.kind == OpKind::kPush);
    CHECK(sent[first + 1].request.kind == OpKind::kPull);
    CHECK(sent[first].server == sent[first + 1].server);
  }
  fixture.Push(3, 1);
  CHECK(fixture.Sent().empty());  // One push of a chunk at a time, so that they arrive in order.
  fixture.Answer(sent[0]);
  const auto later = fixture.Sent();
  REQUIRE(later.size() == 1);
  CHECK(later[0].op == OpId(3));
}

TEST_CASE(
    "Session: an early pull passes pushes that are held or on their way, and no push passes one",
    "[worker][core]") {
  Fixture fixture({.early_pulls = true});
  REQUIRE_OK(fixture.session.Start(OpId(1), {.kind = OpKind::kPush, .held = true}, fixture.now,
                                   &fixture.actions));
  fixture.Pull(2, 1);
  const auto pulls = fixture.Sent();
  REQUIRE(pulls.size() == 2);
  CHECK(pulls[0].request.kind == OpKind::kPull);
  CHECK(pulls[0].request.iteration == Iteration(1));  // SSP's servers hold it back by this.
  fixture.Push(3, 1);
  CHECK(fixture.Sent().empty());  // It does not overtake the held push.
  fixture.session.Release(OpId(1), TableId(0), 0, fixture.now, &fixture.actions);
  const auto pushes = fixture.Sent();
  REQUIRE(pushes.size() == 2);  // The unanswered pulls keep no push back.
  CHECK(pushes[0].op == OpId(1));
  fixture.Answer(pushes[0]);
  const auto later = fixture.Sent();
  REQUIRE(later.size() == 1);  // One push of a chunk at a time.
  CHECK(later[0].op == OpId(3));
  CHECK(later[0].shards[0].sequence == Sequence(2));
  fixture.Answer(pulls[0]);
  fixture.Pull(4, 2);
  CHECK(fixture.Sent().size() == 1);  // One pull of a chunk at a time: beta's is on its way.
  fixture.Answer(pulls[1]);
  CHECK(fixture.Ended().size() == 1);
}

TEST_CASE("Session: a pull tells the membership that all of its shards name", "[worker][core]") {
  const auto seen = [](uint64_t alpha, uint64_t beta) {
    Fixture fixture;
    fixture.Pull(1, 0);
    const auto sent = fixture.Sent();
    fixture.Answer(sent[0], {.membership = Generation(alpha)});
    fixture.Answer(sent[1], {.membership = Generation(beta)});
    return fixture.Ended().at(0).membership;
  };
  CHECK(seen(5, 5) == Generation(5));
  CHECK(seen(5, 6) == Generation(0));
  CHECK(seen(0, 5) == Generation(0));
}

TEST_CASE("Session: a lost message is repeated with the same sequence after a delay",
          "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[1]);
  // kUnknown is a status that nothing has classified (issue 20).
  fixture.Refuse(sent[0], GENERATE(absl::UnavailableError("connection refused"),
                                   absl::UnknownError("Stream removed")));
  CHECK(fixture.Sent().empty());
  CHECK(fixture.session.NextDeadline() == fixture.now + absl::Milliseconds(20));
  fixture.Wait(absl::Milliseconds(20));
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 1);
  CHECK(again[0].message != sent[0].message);
  CHECK(again[0].shards[0].sequence == Sequence(1));
  CHECK_FALSE(fixture.Answer(sent[0]));  // The lost message's answer comes late; it is not used.
  CHECK(fixture.Answer(again[0]));
  CHECK(fixture.Ended().size() == 1);
}

TEST_CASE("Session: the low-water mark trails the oldest unanswered push", "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  fixture.Push(2, 1);
  const auto first = fixture.Sent();
  CHECK(first[0].shards[0].sequence_low_water == Sequence(1));
  fixture.Answer(first[0]);
  const auto second = fixture.Sent();
  REQUIRE(second.size() == 1);
  CHECK(second[0].shards[0].sequence == Sequence(2));
  CHECK(second[0].shards[0].sequence_low_water == Sequence(2));
}

TEST_CASE("Session: a shard that is not ready is asked for again and names whom it waits on",
          "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 4);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0], {.version = Version(4)});
  const Waiting waiting{
      .shard = {TableId(0), ShardId(2)}, .iteration = Iteration(3), .ranks = {1}, .slots = {}};
  fixture.Answer(sent[1], {.outcome = ShardReply::Outcome::kNotReady}, {waiting});
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 1);
  CHECK(again[0].server == 1);
  const SessionWait wait = fixture.session.CurrentWait(fixture.now);
  CHECK(wait.waiting);
  CHECK(wait.peer == "beta");
  CHECK(wait.waiting_on == std::vector<Waiting>{waiting});
}

TEST_CASE("Session: a wait past its deadline fails and says for whom", "[worker][core]") {
  Fixture fixture({.wait_max = absl::Seconds(10)});
  fixture.Pull(1, 4);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0], {.version = Version(4)});
  fixture.Answer(
      sent[1], {.outcome = ShardReply::Outcome::kNotReady},
      {{.shard = {TableId(0), ShardId(2)}, .iteration = Iteration(3), .ranks = {}, .slots = {5}}});
  fixture.Wait(absl::Seconds(10));
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK_STATUS(ended[0].status, absl::StatusCode::kDeadlineExceeded, "waited 10s for beta");
  CHECK_STATUS(ended[0].status, absl::StatusCode::kDeadlineExceeded, "slots 5");
}

TEST_CASE("Session: a server's silence ends an operation, its answers do not", "[worker][core]") {
  Fixture fixture({.silence_max = absl::Seconds(10)});
  fixture.Pull(1, 4);
  for (int i = 0; i < 5; ++i) {
    fixture.Wait(absl::Seconds(6));
    for (const auto& m : fixture.Sent()) {
      fixture.Answer(m, {.outcome = ShardReply::Outcome::kNotReady});
    }
  }
  CHECK(fixture.Ended().empty());
  fixture.Wait(absl::Seconds(10));
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK_STATUS(ended[0].status, absl::StatusCode::kDeadlineExceeded, "waited 40s");
}

TEST_CASE("Session: with a new routing table the time of operations begins anew",
          "[worker][core]") {
  Fixture fixture({.probe_interval = absl::Hours(1), .silence_max = absl::Minutes(5)});
  fixture.Pull(1, 4);
  fixture.now = fixture.now + absl::Minutes(5) - absl::Seconds(1);
  fixture.session.SetRouting(TwoServers(2), fixture.now, &fixture.actions);
  CHECK(fixture.session.NextDeadline() == fixture.now + absl::Minutes(5));
  fixture.Wait(absl::Seconds(31));
  for (const SendMessage& m : fixture.Sent()) fixture.Answer(m, {.version = Version(4)});
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].status.ok());
}

TEST_CASE("Session: a held push is sent shard by shard as its values come", "[worker][core]") {
  Fixture fixture;
  REQUIRE_OK(fixture.session.Start(OpId(1), {.kind = OpKind::kPush, .held = true}, fixture.now,
                                   &fixture.actions));
  fixture.Pull(2, 1);
  CHECK(fixture.Sent().empty());  // The pull may not overtake the push.
  fixture.session.Release(OpId(1), TableId(0), 9, fixture.now, &fixture.actions);
  const auto last = fixture.Sent();  // Shard 2 begins at 16; shard 1 reaches below 9.
  REQUIRE(last.size() == 1);
  CHECK(last[0].shards.size() == 1);
  CHECK(last[0].shards[0].key.shard == ShardId(2));
  fixture.Answer(last[0]);
  const auto pull = fixture.Sent();
  REQUIRE(pull.size() == 1);
  CHECK(pull[0].request.kind == OpKind::kPull);
  fixture.session.Release(OpId(1), TableId(0), 0, fixture.now, &fixture.actions);
  const auto rest = fixture.Sent();
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].shards.size() == 2);
  fixture.Answer(rest[0]);
  CHECK(fixture.Ended().size() == 1);
}

TEST_CASE("Session: a held push leaves its shell nothing to do", "[worker][core]") {
  Fixture fixture;
  REQUIRE_OK(fixture.session.Start(OpId(1), {.kind = OpKind::kPush, .held = true}, fixture.now,
                                   &fixture.actions));
  fixture.Pull(2, 1);
  CHECK(fixture.session.NextDeadline() == fixture.now + absl::Minutes(5));
}

TEST_CASE("Session: a pull tells the lowest version of each table", "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 4);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0], {.version = Version(9)});
  fixture.Answer(sent[1], {.version = Version(7)});
  CHECK(fixture.Ended()[0].versions.at(TableId(0)) == Version(7));
}

TEST_CASE("Session: what a pull holds is of no use to one in another format", "[worker][core]") {
  const bool exact_snapshots = GENERATE(false, true);
  Fixture fixture({.exact_snapshots = exact_snapshots});
  const auto pull = [&fixture](uint64_t op, bool snapshot) {
    REQUIRE_OK(fixture.session.Start(OpId(op), {.iteration = Iteration(4), .snapshot = snapshot},
                                     fixture.now, &fixture.actions));
    const std::vector<SendMessage> sent = fixture.Sent();
    for (const SendMessage& message : sent) fixture.Answer(message, {.version = Version(9)});
    return sent[0].shards[0].held_version;
  };
  CHECK(pull(1, false) == -1);
  CHECK(pull(2, false) == 9);
  CHECK(pull(3, true) == (exact_snapshots ? -1 : 9));
  CHECK(pull(4, true) == 9);
  CHECK(pull(5, false) == (exact_snapshots ? -1 : 9));
}

TEST_CASE("Session: what may have been written without its knowing is asked for anew",
          "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 0);
  const auto first = fixture.Sent();
  for (const SendMessage& message : first) fixture.Answer(message, {.version = Version(4)});
  fixture.session.ForgetHeld(first[0]);  // Shards 0 and 1.
  SendMessage unknown = first[1];
  unknown.shards[0].key = {TableId(7), ShardId(0)};
  fixture.session.ForgetHeld(unknown);  // Ignored.
  fixture.Pull(2, 1);
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 2);
  CHECK(again[0].shards[0].held_version == -1);
  CHECK(again[0].shards[1].held_version == -1);
  CHECK(again[1].shards[0].held_version == 4);
}

TEST_CASE("Session: BSP's past iteration ends the pull with the oldest common one",
          "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 2);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0], {.outcome = ShardReply::Outcome::kPast, .version = Version(5)});
  fixture.Answer(sent[1], {.outcome = ShardReply::Outcome::kPast, .version = Version(4)});
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].status.code() == absl::StatusCode::kOutOfRange);
  CHECK(ended[0].oldest == Iteration(5));
}

TEST_CASE("Session: an old incarnation is fenced for good", "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  fixture.Pull(2, 1);
  const auto sent = fixture.Sent();
  fixture.Refuse(sent[0], absl::AbortedError("incarnation 3 is fenced by 4"));
  CHECK(fixture.Ended().size() == 2);
  CHECK_STATUS(fixture.session.Start(OpId(3), {}, fixture.now, &fixture.actions),
               absl::StatusCode::kAborted, "fenced by 4");
}

TEST_CASE("Session: a stale routing table slows messages down until a newer one comes",
          "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Answer(sent[0]);
  fixture.Refuse(sent[1], absl::FailedPreconditionError("generation 1, mine is 2"));
  CHECK(fixture.actions.need_routing);
  CHECK(fixture.session.needs_routing());
  fixture.Wait(absl::Milliseconds(999));
  CHECK(fixture.Sent().empty());
  Routing moved = TwoServers(2);
  moved.shards[2].server = 0;
  fixture.session.SetRouting(moved, fixture.now, &fixture.actions);
  CHECK_FALSE(fixture.session.needs_routing());
  const auto again = fixture.Sent();
  REQUIRE(again.size() == 1);
  CHECK(again[0].server == 0);
  CHECK(again[0].generation == Generation(2));
  REQUIRE(again[0].shards.size() == 1);
  CHECK(again[0].shards[0].key.shard == ShardId(2));
  CHECK(again[0].shards[0].sequence == Sequence(1));
}

TEST_CASE("Session: a server's shards are cut into some 16 chunks of half to four MiB",
          "[worker][core]") {
  const auto [shards, mebibytes, expected] = GENERATE(
      table<int, int64_t, size_t>({{4, 1, 4}, {64, 1, 16}, {256, 1, 64}, {3, 8, 3}, {1, 0, 1}}));
  Routing routing{.generation = Generation(1), .shards = {}, .servers = {"alpha"}};
  const int64_t elements = mebibytes * (1 << 20) / 4;
  for (int i = 0; i < shards; ++i) {
    routing.shards.push_back(
        {.key = {TableId(0), ShardId(i)}, .elements = {i * elements, (i + 1) * elements}});
  }
  PushPullSession session({});
  SessionActions actions;
  session.SetRouting(routing, Instant(), &actions);
  REQUIRE_OK(session.Start(OpId(1), {}, Instant(), &actions));
  CHECK(actions.send.size() == expected);
}

TEST_CASE("Session: a cancelled pull frees its chunks and its answers are ignored",
          "[worker][core]") {
  Fixture fixture;
  fixture.Pull(1, 3);
  const auto sent = fixture.Sent();
  fixture.session.CancelPull(OpId(1), fixture.now, &fixture.actions);
  CHECK_FALSE(fixture.session.Expects(sent[0].message));
  CHECK_FALSE(fixture.Answer(sent[0]));
  fixture.Pull(2, 2);
  CHECK(fixture.Sent().size() == 2);
}

TEST_CASE("Session: operations are bounded", "[worker][core]") {
  Fixture fixture({.operations_max = 1});
  fixture.Push(1, 0);
  CHECK_STATUS(
      fixture.session.Start(OpId(2), {.kind = OpKind::kPush}, fixture.now, &fixture.actions),
      absl::StatusCode::kResourceExhausted, "at most 1");
}

TEST_CASE(
    "Session: a refusal that is not worth repeating ends the operation with the server's name",
    "[worker][core]") {
  Fixture fixture;
  fixture.Push(7, 3);
  const auto sent = fixture.Sent();
  fixture.Refuse(sent[1], absl::InvalidArgumentError("shard 2 got 3 values"));
  const auto ended = fixture.Ended();
  REQUIRE(ended.size() == 1);
  CHECK_STATUS(ended[0].status, absl::StatusCode::kInvalidArgument,
               "push of iteration 3 to beta: shard 2 got 3 values");
}

TEST_CASE("Session: an idle session has no deadline, so its shell does not spin",
          "[worker][core]") {
  Fixture fixture;
  fixture.Push(1, 0);
  const auto sent = fixture.Sent();
  fixture.Refuse(sent[0], absl::UnavailableError("gone"));
  fixture.Answer(sent[1]);
  fixture.Wait(absl::Milliseconds(50));
  for (const auto& m : fixture.Sent()) fixture.Answer(m);
  CHECK(fixture.session.NextDeadline() == Instant::InfiniteFuture());
}

}  // namespace
}  // namespace capstan::worker::push_pull_session_test
