// Corrections of late gradients, as ShardCore decides them: what is corrected, by how much, and
// that copies need nothing but the records.
#include "common/testing/status_matchers.h"
#include "server/core/shard_core.h"
#include "server/core/testing/shard_fixture.h"

namespace capstan::server::late_gradients_test {
namespace {

using absl::StatusCode;

ConsistencyRule ByStaleness() {
  ConsistencyRule config = Asp();
  config.rate_by_staleness = true;
  return config;
}

ConsistencyRule Compensated(ConsistencyRule config) {
  config.delay_compensation = 1.0f;
  return config;
}

// Three workers that have pulled the first version.
ShardFixture FixtureOfThree(const ConsistencyRule& config) {
  ShardFixture shard(config);
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 1), ActiveMember(2, 1)});
  for (int32_t rank = 0; rank < 3; ++rank) shard.Pull(0, rank);
  return shard;
}

TEST_CASE("Late gradients: the rate is divided by the updates since the pull", "[server][core]") {
  ShardFixture shard = FixtureOfThree(ByStaleness());
  CHECK(shard.values_kept() == 0);
  ShardFixture copy(ByStaleness(), shard);
  shard.Push(BatchPush(0, 1, 0, 1), 12);
  CHECK(shard.value() == 12);
  shard.Push(BatchPush(1, 1, 0, 1), 12);  // One update late: whole.
  CHECK(shard.value() == 24);
  shard.Push(BatchPush(2, 1, 0, 1), 12);  // Two late.
  CHECK(shard.value() == 30);
  CHECK(shard.Push(BatchPush(2, 1, 0, 1), 12).outcome == PushOutcome::kDuplicate);
  CHECK(shard.value() == 30);

  shard.Pull(1, 2);
  shard.Push(BatchPush(2, 1, 1, 2), 12);
  CHECK(shard.value() == 42);
  copy.Replay(shard);
  CHECK(copy.value() == 42);
}

TEST_CASE("Late gradients: delay compensation uses the values that were pulled", "[server][core]") {
  const ConsistencyRule config = Compensated(GENERATE(Asp(), Ssp(5)));
  ShardFixture shard = FixtureOfThree(config);
  CHECK(shard.values_kept() == 1);
  ShardFixture copy(config, shard);
  shard.Push(BatchPush(0, 1, 0, 1), 2);  // On time.
  CHECK(shard.value() == 2);
  shard.Push(BatchPush(1, 1, 0, 1), 3);  // 3 + 3 * 3 * (2 - 0).
  CHECK(shard.value() == 23);
  shard.Pull(1, 0);
  CHECK(shard.values_kept() == 2);
  shard.Push(BatchPush(2, 1, 0, 1), -1);  // -1 + 1 * (23 - 0).
  CHECK(shard.value() == 45);
  CHECK(shard.values_kept() == 1);
  shard.Push(BatchPush(0, 1, 1, 2), 1);  // 1 + 1 * (45 - 23).
  CHECK(shard.value() == 68);
  CHECK(shard.values_kept() == 0);
  copy.Replay(shard);
  CHECK(copy.value() == 68);
  CHECK(copy.values_kept() == 0);
}

TEST_CASE("Late gradients: a worker that pulls ahead is corrected by the pull before",
          "[server][core]") {
  ShardFixture shard(Compensated(Asp()));
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 1)});
  shard.Pull(0, 0);
  shard.Push(BatchPush(1, 1, 0, 1), 5);  // Its pull is not known, so it is applied unchanged.
  CHECK(shard.value() == 5);
  shard.Pull(1, 0);
  shard.Push(BatchPush(0, 1, 0, 1), 1);  // 1 + 1 * (5 - 0).
  CHECK(shard.value() == 11);
  shard.Push(BatchPush(0, 1, 1, 2), 1);  // 1 + 1 * (11 - 5).
  CHECK(shard.value() == 18);
}

TEST_CASE("Late gradients: a pull that waited counts from its answer on", "[server][core]") {
  ShardFixture shard(Compensated(Ssp(0)));
  shard.SetMembers({ActiveMember(0, 1), ActiveMember(1, 1)});
  const PullToken waiting = shard.Pull(1, 0);
  REQUIRE(shard.Waits(waiting));
  CHECK(shard.values_kept() == 0);
  shard.Push(BatchPush(0, 1, 0, 1), 1);
  shard.Push(BatchPush(1, 1, 0, 1), 1);
  REQUIRE_FALSE(shard.Waits(waiting));
  CHECK(shard.values_kept() == 1);
  shard.Push(BatchPush(0, 1, 1, 2), 1);  // On time.
  CHECK(shard.value() == 3);
}

TEST_CASE("Late gradients: a restored shard corrects nothing before a worker's next pull",
          "[server][core]") {
  ShardFixture shard = FixtureOfThree(Compensated(Asp()));
  shard.Push(BatchPush(0, 1, 0, 1), 2);
  ShardFixture restored(Compensated(Asp()), shard);
  restored.Push(BatchPush(1, 1, 0, 1), 3);
  CHECK(restored.value() == 5);
  restored.Pull(1, 1);
  restored.Push(BatchPush(2, 1, 0, 1), 1);
  restored.Push(BatchPush(1, 1, 1, 2), 1);  // 1 + 1 * (6 - 5).
  CHECK(restored.value() == 8);
}

TEST_CASE("Late gradients: nothing is kept for the dead, or for readers of snapshots",
          "[server][core]") {
  ShardFixture shard = FixtureOfThree(Compensated(Asp()));
  shard.Push(BatchPush(0, 1, 0, 1), 2);
  CHECK(shard.values_kept() == 1);
  shard.SetMembers({ActiveMember(0, 1)});
  CHECK(shard.values_kept() == 0);
  PullHead snapshot;
  snapshot.rank = kReaderRank;
  snapshot.snapshot = true;
  shard.Pull(snapshot);
  snapshot.rank = Rank(0);  // A worker that evaluates.
  snapshot.incarnation = Incarnation(1);
  shard.Pull(snapshot);
  CHECK(shard.values_kept() == 0);
}

TEST_CASE("Late gradients: corrections that cannot be are refused", "[server][core]") {
  ConsistencyRule config = Bsp(2);
  config.rate_by_staleness = true;
  CHECK_STATUS(ShardCore::Make(config), StatusCode::kInvalidArgument,
               "expected neither under BSP, which has no late gradients");
  config = Asp();
  config.delay_compensation = -1.0f;
  CHECK_STATUS(ShardCore::Make(config), StatusCode::kInvalidArgument,
               "delay_compensation: -1, expected 0 or more");
}

}  // namespace
}  // namespace capstan::server::late_gradients_test
