#include "server/core/shard_core.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "server/core/testing/shard_fixture.h"

namespace capstan::server::shard_core_test {
namespace {

using absl::StatusCode;

#define CHECK_READS(fixture, token, expected_value, expected_version) \
  do {                                                                \
    const auto answer = (fixture).AnswerTo(token);                    \
    REQUIRE(answer.has_value());                                      \
    CHECK(answer->reply.outcome == PullOutcome::kValues);             \
    CHECK(answer->value == (expected_value));                         \
    CHECK(answer->reply.version == Version(expected_version));        \
  } while (false)

// ---------------------------------------------------------------- BSP

TEST_CASE("BSP: a pull waits for exactly the version of its iteration", "[server][core]") {
  ShardFixture shard(Bsp(2));
  CHECK_READS(shard, shard.Pull(0), 0, 0);
  const PullToken next = shard.Pull(1);
  CHECK(shard.Waits(next));
  shard.Push(SlotPush(0, 0), 5);
  CHECK(shard.Waits(next));
  CHECK_READS(shard, shard.Pull(0), 0, 0);
  const ReplyPush last = shard.Push(SlotPush(0, 1), 6);
  CHECK(last.version == Version(1));
  CHECK_READS(shard, next, 11, 1);
}

TEST_CASE("BSP: the previous version is readable until the first push of the next iteration",
          "[server][core]") {
  ShardFixture shard(Bsp(2));
  shard.Push(SlotPush(0, 0), 5);
  shard.Push(SlotPush(0, 1), 6);
  CHECK_READS(shard, shard.Pull(0), 0,
              0);  // The new holder of a dead worker's slot computes it once more.
  CHECK(shard.Push(SlotPush(0, 1), 6).outcome == PushOutcome::kDuplicate);
  CHECK_READS(shard, shard.Pull(0), 0, 0);

  shard.Push(SlotPush(1, 0), 7);
  CHECK_FALSE(shard.previous_held());
  const auto past = shard.AnswerTo(shard.Pull(0));
  REQUIRE(past.has_value());
  CHECK(past->reply.outcome == PullOutcome::kPast);
  CHECK(past->reply.version == Version(1));
}

TEST_CASE("BSP: PAST names the oldest version that can be read", "[server][core]") {
  ShardFixture shard(Bsp(1));
  for (int64_t iteration = 0; iteration < 5; ++iteration) shard.Push(SlotPush(iteration, 0), 1);
  const auto past = shard.AnswerTo(shard.Pull(2));
  REQUIRE(past.has_value());
  CHECK(past->reply.outcome == PullOutcome::kPast);
  CHECK(past->reply.version == Version(4));
  CHECK_READS(shard, shard.Pull(4), 4, 4);
}

TEST_CASE("BSP: a late repetition of an applied slot is a duplicate", "[server][core]") {
  ShardFixture shard(Bsp(2));
  shard.Push(SlotPush(0, 0), 5);
  shard.Push(SlotPush(0, 1), 6);
  shard.Push(SlotPush(1, 0), 1);
  const ReplyPush late = shard.Push(SlotPush(0, 0), 5);
  CHECK(late.outcome == PushOutcome::kDuplicate);
  CHECK(late.version == Version(1));
  CHECK(shard.value() == 11);
  CHECK(shard.core().pushes_duplicate() == 1);
  CHECK(shard.core().pushes_recorded() == 3);
}

TEST_CASE("BSP: any worker may compute any slot, and the second to do so changes nothing",
          "[server][core]") {
  ShardFixture shard(Bsp(2));
  CHECK(shard.Push(SlotPush(0, 1, /*rank=*/0, /*incarnation=*/1), 6).outcome ==
        PushOutcome::kRecorded);
  CHECK(shard.Push(SlotPush(0, 1, /*rank=*/1, /*incarnation=*/2), 6).outcome ==
        PushOutcome::kDuplicate);
  shard.Push(SlotPush(0, 0, /*rank=*/1, /*incarnation=*/2), 5);
  CHECK(shard.value() == 11);
}

TEST_CASE("BSP: a summed subtree replaces the parts that came one by one", "[server][core]") {
  ShardFixture shard(Bsp(4));
  shard.Push(SlotPush(0, 1), 2);
  PushHead pair = SlotPush(0, 0);
  pair.slot_end = 2;
  CHECK(shard.Push(pair, 1 + 2).outcome == PushOutcome::kRecorded);
  CHECK(shard.gradients_kept() == 1);
  shard.Push(SlotPush(0, 2), 4);
  shard.Push(SlotPush(0, 3), 8);
  CHECK(shard.value() == 15);
  CHECK(shard.gradients_kept() == 0);
}

TEST_CASE("BSP: a gradient from the future is refused", "[server][core]") {
  ShardFixture shard(Bsp(2));
  CHECK_STATUS(shard.TryPush(SlotPush(1, 0), 5), StatusCode::kInvalidArgument,
               "iteration 1: expected at most 0, the shard's version");
  CHECK(shard.Push(SlotPush(0, 0), 5).outcome == PushOutcome::kRecorded);
}

TEST_CASE("BSP: a pull past its deadline is told which slots are missing", "[server][core]") {
  ShardFixture shard(Bsp(4));
  shard.Push(SlotPush(0, 2), 1);
  const PullToken pull = shard.Pull(1);
  CHECK(shard.core().NextDeadline() == shard.now() + ShardFixture::kPatience);
  shard.Pass(ShardFixture::kPatience - absl::Milliseconds(1));
  CHECK(shard.Waits(pull));
  shard.Pass(absl::Milliseconds(1));
  REQUIRE_FALSE(shard.Waits(pull));
  const ReplyPull reply = shard.AnswerTo(pull)->reply;
  CHECK(reply.outcome == PullOutcome::kNotReady);
  CHECK(reply.waiting_on.iteration == Iteration(0));
  CHECK(reply.waiting_on.slots == std::vector<SlotId>{SlotId(0), SlotId(1), SlotId(3)});
  CHECK(reply.waiting_on.ranks.empty());
  CHECK(shard.core().NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE(
    "BSP: steady training keeps one gradient or one previous version, never both for one slot",
    "[server][core]") {
  ShardFixture shard(Bsp(1));
  for (int64_t iteration = 0; iteration < 10; ++iteration) {
    shard.Push(SlotPush(iteration, 0), 1);
    CHECK(shard.gradients_kept() == 0);
    CHECK(shard.previous_held());
  }
}

TEST_CASE("BSP with backups: all but so many slots make an update, and later ones are dropped",
          "[server][core]") {
  ShardFixture shard(Bsp(3, 1));
  ShardFixture copy(Bsp(3, 1), shard);
  const PullToken next = shard.Pull(1);
  shard.Push(SlotPush(0, 2), 5);
  CHECK(shard.Push(SlotPush(0, 2), 5).outcome == PushOutcome::kDuplicate);
  CHECK(shard.Waits(next));
  shard.Push(SlotPush(0, 0), 6);
  CHECK_READS(shard, next, 11, 1);

  const ReplyPush late = shard.Push(SlotPush(0, 1), 100);
  CHECK(late.outcome == PushOutcome::kLate);
  CHECK(late.rests_on == Version(1));
  CHECK(shard.Push(SlotPush(0, 1), 100).outcome == PushOutcome::kDuplicate);
  CHECK(shard.Push(SlotPush(0, 0), 6).outcome == PushOutcome::kDuplicate);
  CHECK(shard.value() == 11);
  CHECK(shard.core().pushes_late() == 1);
  CHECK(shard.core().pushes_duplicate() == 3);

  // The late slot takes part in the next iteration like the others.
  shard.Push(SlotPush(1, 1), 1);
  shard.Push(SlotPush(1, 0), 2);
  CHECK(shard.value() == 14);
  copy.Replay(shard);
  CHECK(copy.value() == 14);
  CHECK(ShardFixture(Bsp(3, 1), shard).core().pushes_late() == 1);
}

TEST_CASE("BSP with backups: numbers of backups that cannot be are refused", "[server][core]") {
  const int32_t backups = GENERATE(-1, 3, 4);
  CHECK_STATUS(ShardCore::Make(Bsp(3, backups)), StatusCode::kInvalidArgument,
               absl::StrCat("backups: ", backups, ", expected 0 to 2, fewer than slots"));
}

// ---------------------------------------------------------------- SSP

TEST_CASE("SSP: a reader s iterations ahead reads, one at s + 1 waits", "[server][core]") {
  ShardFixture shard(Ssp(2));
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 2)});
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    shard.Push(BatchPush(0, 1, iteration, iteration + 1), 1);
  }
  const PullToken at_bound = shard.Pull(2);
  CHECK_READS(shard, at_bound, 3, 3);
  CHECK(shard.AnswerTo(at_bound)->reply.staleness == 2);

  const PullToken beyond = shard.Pull(3);
  CHECK(shard.Waits(beyond));
  shard.Push(BatchPush(1, 2, 0, 1), 10);
  CHECK_READS(shard, beyond, 13, 4);
  CHECK(shard.AnswerTo(beyond)->reply.staleness == 2);
}

TEST_CASE("SSP: inactive members are not waited for", "[server][core]") {
  ShardFixture shard(Ssp(0));
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 2)});
  shard.Push(BatchPush(0, 1, 0, 1), 1);
  const PullToken pull = shard.Pull(1);
  CHECK(shard.Waits(pull));
  shard.SetMembers({ActiveMember(0, 1), RestingMember(1, 2)});
  CHECK_READS(shard, pull, 1, 1);
}

TEST_CASE("SSP: a death releases those who waited for the dead", "[server][core]") {
  ShardFixture shard(Ssp(0));
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 2)});
  shard.Push(BatchPush(0, 1, 0, 1), 1);
  const PullToken pull = shard.Pull(1);
  CHECK(shard.Waits(pull));
  shard.SetMembers({ActiveMember(0, 1)});
  CHECK_READS(shard, pull, 1, 1);
}

TEST_CASE("SSP: a new member is waited for from its start iteration on", "[server][core]") {
  ShardFixture shard(Ssp(1));
  shard.SetMembers({ActiveMember(0, 1)});
  for (int64_t iteration = 0; iteration < 10; ++iteration) {
    shard.Push(BatchPush(0, 1, iteration, iteration + 1), 1);
  }
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 2, /*start_iteration=*/9)});
  CHECK_FALSE(shard.Waits(shard.Pull(10)));
  shard.Push(BatchPush(0, 1, 10, 11), 1);
  CHECK(shard.Waits(shard.Pull(11)));
  shard.Push(BatchPush(1, 2, 9, 1), 1);
  CHECK_FALSE(shard.Waits(shard.Pull(11)));
}

TEST_CASE("SSP: before any member is known only pulls within the bound are answered",
          "[server][core]") {
  ShardFixture shard(Ssp(2));
  CHECK_READS(shard, shard.Pull(2), 0, 0);
  const PullToken pull = shard.Pull(3);
  CHECK(shard.Waits(pull));
  shard.SetMembers({ActiveMember(0, 1, /*start_iteration=*/3)});
  CHECK_READS(shard, pull, 0, 0);
}

TEST_CASE("SSP: a pull past its deadline is told which ranks are behind", "[server][core]") {
  ShardFixture shard(Ssp(1));
  shard.SetMembers(
      {ActiveMember(0, 1), ActiveMember(1, 2), ActiveMember(2, 3, 4), RestingMember(3, 4)});
  for (int64_t iteration = 0; iteration < 4; ++iteration) {
    shard.Push(BatchPush(0, 1, iteration, iteration + 1), 1);
  }
  const PullToken pull = shard.Pull(4);
  shard.Pass(ShardFixture::kPatience);
  REQUIRE_FALSE(shard.Waits(pull));
  const ReplyPull reply = shard.AnswerTo(pull)->reply;
  CHECK(reply.outcome == PullOutcome::kNotReady);
  CHECK(reply.version == Version(4));
  CHECK(reply.waiting_on.iteration == Iteration(2));
  CHECK(reply.waiting_on.ranks == std::vector<Rank>{Rank(1)});
  CHECK(reply.waiting_on.slots.empty());
}

TEST_CASE("SSP: a retry after a lost reply is a duplicate and applies nothing", "[server][core]") {
  ShardFixture shard(Ssp(0));
  const PushHead push = BatchPush(0, 1, 0, 1);
  CHECK(shard.Push(push, 5).outcome == PushOutcome::kRecorded);
  const ReplyPush again = shard.Push(push, 5);
  CHECK(again.outcome == PushOutcome::kDuplicate);
  CHECK(again.version == Version(1));
  CHECK(shard.value() == 5);
}

TEST_CASE("SSP: slots are refused", "[server][core]") {
  ShardFixture shard(Ssp(0));
  CHECK_STATUS(shard.TryPush(SlotPush(0, 1), 1), StatusCode::kInvalidArgument,
               "slots [1, 2): expected [0, 0), only BSP has slots");
}

// ---------------------------------------------------------------- ASP

TEST_CASE("ASP: a pull never waits and is told how far the slowest is behind", "[server][core]") {
  ShardFixture shard(Asp());
  CHECK_READS(shard, shard.Pull(100), 0, 0);
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 2)});
  for (int64_t iteration = 0; iteration < 7; ++iteration) {
    shard.Push(BatchPush(0, 1, iteration, iteration + 1), 1);
  }
  shard.Push(BatchPush(1, 2, 0, 1), 10);
  const PullToken pull = shard.Pull(7);
  CHECK_READS(shard, pull, 17, 8);
  CHECK(shard.AnswerTo(pull)->reply.staleness == 6);
}

TEST_CASE("ASP: a repeated push is applied once", "[server][core]") {
  ShardFixture shard(Asp());
  for (int i = 0; i < 3; ++i) shard.Push(BatchPush(0, 1, 4, 9), 5);
  CHECK(shard.value() == 5);
}

// ---------------------------------------------------------------- every mode

TEST_CASE("Shard: a pull of what the caller holds costs no values", "[server][core]") {
  ShardFixture shard(Asp());
  shard.Push(BatchPush(0, 1, 0, 1), 5);
  PullHead pull{
      .token = {}, .rank = Rank(0), .incarnation = Incarnation(1), .iteration = Iteration(1)};
  pull.held_version = Version(1);
  const auto same = shard.AnswerTo(shard.Pull(pull));
  REQUIRE(same.has_value());
  CHECK(same->reply.outcome == PullOutcome::kUnchanged);
  CHECK(same->reply.read_from == ReadFrom::kNothing);
  CHECK(same->reply.version == Version(1));
  shard.Push(BatchPush(0, 1, 1, 2), 5);
  CHECK_READS(shard, shard.Pull(pull), 10, 2);
}

TEST_CASE("Shard: a snapshot reads what is there, for readers too", "[server][core]") {
  ShardFixture shard(Bsp(2));
  shard.Push(SlotPush(0, 0), 1);
  shard.Push(SlotPush(0, 1), 2);
  PullHead snapshot{.token = {}, .rank = kReaderRank, .iteration = Iteration(99), .snapshot = true};
  CHECK_READS(shard, shard.Pull(snapshot), 3, 1);
  snapshot.snapshot = false;
  CHECK_STATUS(shard.TryPull(snapshot), StatusCode::kInvalidArgument, "may only pull snapshots");
}

TEST_CASE("Shard: an older incarnation of a rank is fenced off in every mode", "[server][core]") {
  const ConsistencyRule config = GENERATE(Bsp(2), Ssp(1), Asp());
  ShardFixture shard(config);
  const auto push = [&](uint64_t incarnation, int32_t slot) {
    if (config.mode == ConsistencyMode::kBsp) return SlotPush(0, slot, 0, incarnation);
    return BatchPush(0, incarnation, 0, 1);
  };
  const PullHead old_pull{.token = {}, .rank = Rank(0), .incarnation = Incarnation(1)};
  SECTION("by a push of the new incarnation") {
    shard.Push(push(1, 0), 1);
    shard.Push(push(2, 1), 2);
  }
  SECTION("by a pull of the new incarnation") { shard.Pull(0, /*rank=*/0, /*incarnation=*/2); }
  SECTION("by the membership") { shard.SetMembers({ActiveMember(0, 2)}); }
  const int64_t before = shard.value();
  CHECK_STATUS(shard.TryPush(push(1, 0), 1), StatusCode::kAborted,
               "incarnation 1 of rank 0 is fenced off");
  CHECK_STATUS(shard.TryPull(old_pull), StatusCode::kAborted, "expected 2 or higher");
  CHECK(shard.value() == before);
}

TEST_CASE("Shard: an incarnation that the scheduler has not listed changes nothing (issue 20)",
          "[server][core]") {
  const ConsistencyRule config = GENERATE(Bsp(2), Ssp(1), Asp());
  const uint64_t unlisted = GENERATE(uint64_t{9}, UINT64_MAX);
  const int32_t rank = GENERATE(0, 1);  // Listed with another incarnation; not listed.
  const auto push = [&](int32_t of, uint64_t incarnation) {
    if (config.mode == ConsistencyMode::kBsp) return SlotPush(0, of, of, incarnation);
    return BatchPush(of, incarnation, 0, 1);
  };
  ShardFixture shard(config);
  shard.SetMembers({ActiveMember(0, 1)});
  const ShardCoreState before = shard.core().Save();
  CHECK_STATUS(shard.TryPush(push(rank, unlisted), 5), StatusCode::kUnavailable,
               absl::StrCat("incarnation ", unlisted, " of rank ", rank,
                            ": expected one that the scheduler has listed, up to membership "
                            "generation 1"));
  const bool snapshot = GENERATE(true, false);
  CHECK_STATUS(shard.TryPull({.token = {},
                              .rank = Rank(rank),
                              .incarnation = Incarnation(unlisted),
                              .snapshot = snapshot}),
               StatusCode::kUnavailable, "expected one that the scheduler has listed");
  CHECK(shard.core().Save() == before);
  shard.Push(push(0, 1), 1);  // A listed worker goes on.
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 10)});
  shard.Push(push(1, 10), 2);
}

TEST_CASE("Shard: a push of a dead worker that is still on its way is refused", "[server][core]") {
  ShardFixture shard(Ssp(0));
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 2)});
  shard.Push(BatchPush(1, 2, 0, 1), 5);
  shard.SetMembers({ActiveMember(0, 1)});
  CHECK_STATUS(shard.TryPush(BatchPush(1, 2, 0, 1), 5), StatusCode::kAborted, "fenced off");
  CHECK_STATUS(shard.TryPush(BatchPush(1, 2, 1, 2), 5), StatusCode::kAborted, "fenced off");
  CHECK(shard.value() == 5);
}

TEST_CASE("Shard: an older membership than the known one is ignored", "[server][core]") {
  ShardFixture shard(Ssp(0));
  shard.SetMembers({ActiveMember(0, 1)});
  shard.SetMembers({ActiveMember(0, 1)});
  Actions actions;
  shard.core().SetMembership({.generation = Generation(1), .members = {}}, actions);
  REQUIRE_OK(shard.TryPush(BatchPush(0, 1, 0, 1), 5));  // The worker does not count as dead.
}

TEST_CASE("Shard: a cancelled pull is forgotten", "[server][core]") {
  ShardFixture shard(Bsp(1));
  const PullToken pull = shard.Pull(1);
  CHECK(shard.core().pulls_pending() == 1);
  shard.Cancel(pull);
  shard.Cancel(pull);
  CHECK(shard.core().pulls_pending() == 0);
  CHECK(shard.core().NextDeadline() == Instant::InfiniteFuture());
  shard.Push(SlotPush(0, 0), 1);
  CHECK(shard.Waits(pull));
}

TEST_CASE("Shard: a pull without patience is answered at once, with whom it waits on",
          "[server][core]") {
  ShardFixture shard(Bsp(2));
  PullHead pull{
      .token = {}, .rank = Rank(0), .incarnation = Incarnation(1), .iteration = Iteration(1)};
  pull.deadline = shard.now();
  const auto answer = shard.AnswerTo(shard.Pull(pull));
  REQUIRE(answer.has_value());
  CHECK(answer->reply.outcome == PullOutcome::kNotReady);
  CHECK(answer->reply.waiting_on.slots.size() == 2);
}

TEST_CASE("Shard: deadlines are kept in the order of time", "[server][core]") {
  ShardFixture shard(Bsp(1));
  PullHead pull{
      .token = {}, .rank = Rank(0), .incarnation = Incarnation(1), .iteration = Iteration(1)};
  pull.deadline = shard.now() + absl::Seconds(9);
  const PullToken late = shard.Pull(pull);
  pull.deadline = shard.now() + absl::Seconds(3);
  const PullToken soon = shard.Pull(pull);
  CHECK(shard.core().NextDeadline() == shard.now() + absl::Seconds(3));
  shard.Pass(absl::Seconds(5));
  CHECK_FALSE(shard.Waits(soon));
  CHECK(shard.Waits(late));
}

TEST_CASE("Shard: waiting pulls are bounded", "[server][core]") {
  ShardFixture shard(Bsp(1));
  for (int i = 0; i < ShardCore::kPendingPullsMax; ++i) shard.Pull(1);
  PullHead pull{
      .token = {}, .rank = Rank(0), .incarnation = Incarnation(1), .iteration = Iteration(1)};
  CHECK_STATUS(shard.TryPull(pull), StatusCode::kResourceExhausted, "8192 pulls wait");
}

TEST_CASE("Shard: what no client sends is refused by name", "[server][core]") {
  ShardFixture shard(Ssp(0));
  const auto invalid = StatusCode::kInvalidArgument;
  CHECK_STATUS(shard.TryPush(BatchPush(0, 1, -1, 1), 1), invalid, "iteration -1: expected 0 to");
  CHECK_STATUS(shard.TryPush(BatchPush(0, 1, INT64_MAX, 1), 1), invalid,
               "iteration 9223372036854775807: expected 0 to");
  CHECK_STATUS(shard.TryPush(BatchPush(0, 1, 0, 0), 1), invalid, "sequence 0");
  PullHead pull{
      .token = {}, .rank = Rank(0), .incarnation = Incarnation(1), .iteration = Iteration(-7)};
  CHECK_STATUS(shard.TryPull(pull), invalid, "iteration -7: expected 0 to");
  CHECK_STATUS(ShardCore::Make(Bsp(0)), invalid, "slots: 0, expected 1 to 1024");
  CHECK_STATUS(ShardCore::Make(Bsp(1025)), invalid, "slots: 1025");
  CHECK_STATUS(ShardCore::Make(Ssp(-1)), invalid, "staleness_bound: -1, expected 0 or more");
}

TEST_CASE("Shard core: a reply rests on the version that contains its push", "[server][core]") {
  SECTION("BSP: a slot waits for its iteration, a repetition too") {
    ShardFixture shard(Bsp(2));
    CHECK(shard.Push(SlotPush(0, 0), 1).rests_on == Version(1));
    CHECK(shard.Push(SlotPush(0, 0), 1).rests_on == Version(1));
    CHECK(shard.Push(SlotPush(0, 1), 1).rests_on == Version(1));
    CHECK(shard.Push(SlotPush(1, 0), 1).rests_on == Version(2));
    CHECK(shard.Push(SlotPush(0, 1), 1).rests_on == Version(1));
  }
  SECTION("SSP: it is in the version after it") {
    ShardFixture shard(Ssp(0));
    CHECK(shard.Push(BatchPush(0, 1, 0, 1), 1).rests_on == Version(1));
    CHECK(shard.Push(BatchPush(0, 1, 1, 2), 1).rests_on == Version(2));
    CHECK(shard.Push(BatchPush(0, 1, 0, 1), 1).rests_on == Version(2));
  }
}

TEST_CASE("Shard core: a restored core knows what was applied", "[server][core]") {
  ShardFixture shard(Ssp(1));
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 2)});
  shard.Push(BatchPush(0, 1, 0, 1), 5);
  ShardFixture copy(Ssp(1), shard);
  CHECK(copy.Push(BatchPush(0, 1, 0, 1), 5).outcome == PushOutcome::kDuplicate);
  CHECK(copy.Push(BatchPush(0, 1, 1, 2), 6).outcome == PushOutcome::kRecorded);
  CHECK(copy.value() == 11);
  CHECK(copy.Waits(copy.Pull(2, 0, 1)));  // Rank 1 has finished nothing.
  CHECK_STATUS(copy.TryPush(BatchPush(0, 0, 0, 1), 5), absl::StatusCode::kAborted, "fenced off");
}

TEST_CASE("Shard core: an iteration whose slots are partly in is done anew after a restore",
          "[server][core]") {
  ShardFixture shard(Bsp(2));
  shard.Push(SlotPush(0, 0), 1);
  ShardFixture copy(Bsp(2), shard);
  CHECK(copy.Push(SlotPush(0, 0), 1).outcome == PushOutcome::kRecorded);
  copy.Push(SlotPush(0, 1), 2);
  CHECK(copy.value() == 3);
}

TEST_CASE("Shard core: records that do not follow are refused", "[server][core]") {
  ShardFixture shard(Bsp(1));
  Actions actions;
  ShardRecord record{.kind = ShardRecord::Kind::kUpdate, .position = Position(2), .membership = {}};
  CHECK_STATUS(shard.core().Replay(record, actions), absl::StatusCode::kDataLoss,
               "record 2: expected 1");
  record.position = Position(1);
  record.version = Version(3);
  CHECK_STATUS(shard.core().Replay(record, actions), absl::StatusCode::kDataLoss,
               "of version 3: expected 0");
  record.kind = ShardRecord::Kind::kPush;
  CHECK_STATUS(shard.core().Replay(record, actions), absl::StatusCode::kDataLoss,
               "is a push: expected updates");
  CHECK(actions.empty());
  CHECK_STATUS(ShardCore::Restore(Bsp(1), {.previous_readable = true}), absl::StatusCode::kDataLoss,
               "version 0 has a previous one");
}

TEST_CASE("Shard core: a state whose counts are negative or would overflow is refused",
          "[server][core]") {
  const auto refused = [](const ShardCoreState& state, const std::string& why) {
    CHECK_STATUS(ShardCore::Restore(Asp(), state), absl::StatusCode::kDataLoss, why);
  };
  constexpr const char* kExpected = ": expected 0 to 4611686018427387904";
  refused({.position = Position(INT64_MAX)},
          absl::StrCat("position 9223372036854775807", kExpected));
  refused({.position = Position(-1)}, absl::StrCat("position -1", kExpected));
  refused({.version = Version(INT64_MAX)}, absl::StrCat("version 9223372036854775807", kExpected));
  refused({.pushes_recorded = INT64_MAX},
          absl::StrCat("pushes_recorded 9223372036854775807", kExpected));
  refused({.pushes_duplicate = -2}, absl::StrCat("pushes_duplicate -2", kExpected));
  refused({.ticks = {{.clock_seconds = 5, .version = Version(1)}}}, "tick at 5 s, of version 1");
  refused({.pushes_late = INT64_MIN}, "pushes_late -9223372036854775808: expected 0 to");

  REQUIRE_OK_AND_ASSIGN(ShardCore core,
                        ShardCore::Restore(Asp(), {.position = kPositionMax,
                                                   .pushes_recorded = kPositionMax.value()}));
  Actions actions;
  core.MakeBarrier(actions);
  CHECK(core.position() == kPositionMax.Next());
}

TEST_CASE("Shard core: a barrier moves the position only", "[server][core]") {
  ShardFixture shard(Asp());
  Actions actions;
  shard.core().MakeBarrier(actions);
  REQUIRE(actions.size() == 1);
  CHECK(std::get<MakeRecord>(actions[0]).record.position == Position(1));
  CHECK(shard.core().position() == Position(1));
  CHECK(shard.core().version() == Version(0));
}

}  // namespace
}  // namespace capstan::server::shard_core_test
