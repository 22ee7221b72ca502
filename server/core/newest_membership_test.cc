// Updates take the learning rate, and which rows are too old, from the newest membership.
#include <catch2/catch.hpp>
#include <cstdint>
#include <variant>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/core/shard_core.h"
#include "server/core/testing/shard_fixture.h"

namespace capstan::server::newest_membership_test {
namespace {

constexpr int64_t kTtl = 64;

// A BSP shard of one slot, with its records and what its updates were told.
struct Shard {
  Shard() : core(ShardCore::Make(Bsp(1), kTtl).value()) {}
  explicit Shard(const ShardCoreState& state)
      : core(ShardCore::Restore(Bsp(1), state, kTtl).value()) {}

  void Tell(double factor, int64_t clock_seconds) {
    Actions actions;
    core.SetMembership({.generation = Generation(++generation),
                        .members = {ActiveMember(0, 1)},
                        .learning_rate_factor = factor,
                        .clock_seconds = clock_seconds},
                       actions);
    CarryOut(actions);
  }
  void Update() {
    Actions actions;
    REQUIRE_OK(core.Push(SlotPush(core.version().value(), 0), actions));
    CarryOut(actions);
  }
  void Replay(const ShardRecord& record) {
    Actions actions;
    REQUIRE_OK(core.Replay(record, actions));
    CarryOut(actions);
  }
  void CarryOut(const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* made = std::get_if<MakeRecord>(&action)) records.push_back(made->record);
      if (const auto* apply = std::get_if<ApplyGradient>(&action)) {
        rates.push_back(apply->learning_rate_factor);
        evicted_before.push_back(apply->evict_before.value());
      }
    }
  }

  ShardCore core;
  uint64_t generation = 0;
  std::vector<ShardRecord> records;
  std::vector<double> rates;
  std::vector<int64_t> evicted_before;
};

TEST_CASE("Shard core: updates follow the newest membership, replayed and restored ones, too",
          "[server][core]") {
  Shard shard;
  shard.Tell(1, 0);
  shard.Update();
  shard.Update();
  shard.Tell(0.25, 1);
  shard.Update();
  shard.Tell(0.25, 64);
  shard.Update();
  shard.Tell(0.25, 65);
  shard.Update();
  CHECK(shard.rates == std::vector<double>{1, 1, 0.25, 0.25, 0.25});
  // The first two updates came before the tick that is as old as the time to live.
  CHECK(shard.evicted_before == std::vector<int64_t>{0, 0, 0, 0, 3});
  Shard replica;
  for (const ShardRecord& record : shard.records) replica.Replay(record);
  CHECK(replica.rates == shard.rates);
  CHECK(replica.evicted_before == shard.evicted_before);
  CHECK(replica.core.Save().ticks ==
        std::vector<ClockTick>{{1, Version(2)}, {64, Version(3)}, {65, Version(4)}});
  Shard restored(shard.core.Save());
  restored.Update();
  CHECK(restored.rates == std::vector<double>{0.25});
  CHECK(restored.evicted_before == std::vector<int64_t>{3});
  CHECK(restored.core.Save().ticks == shard.core.Save().ticks);
}

}  // namespace
}  // namespace capstan::server::newest_membership_test
