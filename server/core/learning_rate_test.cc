// The learning rate that a shard's memberships bring.
#include <catch2/catch.hpp>
#include <cstdint>
#include <variant>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/core/shard_core.h"
#include "server/core/testing/shard_fixture.h"

namespace capstan::server {
namespace {

TEST_CASE(
    "Shard core: updates have the learning rate of the newest membership, replayed and "
    "restored ones, too",
    "[server][core]") {
  REQUIRE_OK_AND_ASSIGN(ShardCore core, ShardCore::Make(Bsp(1)));
  REQUIRE_OK_AND_ASSIGN(ShardCore replica, ShardCore::Make(Bsp(1)));
  std::vector<ShardRecord> records;
  const auto rate_of = [](const Actions& actions) {
    double factor = 0;
    for (const Action& action : actions) {
      if (const auto* apply = std::get_if<ApplyGradient>(&action)) {
        factor = apply->learning_rate_factor;
      }
    }
    return factor;
  };
  const auto carry_out = [&](const Actions& actions) {
    for (const Action& action : actions) {
      const auto* made = std::get_if<MakeRecord>(&action);
      if (made != nullptr) records.push_back(made->record);
    }
    return rate_of(actions);
  };
  std::vector<double> rates, replayed;
  for (int64_t iteration = 0; iteration < 4; ++iteration) {
    if (iteration % 2 == 0) {
      Actions actions;
      core.SetMembership({.generation = Generation(static_cast<uint64_t>(iteration) + 1),
                          .members = {ActiveMember(0, 1)},
                          .learning_rate_factor = iteration == 0 ? 1 : 0.25},
                         actions);
      carry_out(actions);
    }
    Actions actions;
    REQUIRE_OK(core.Push(SlotPush(iteration, 0), actions));
    rates.push_back(carry_out(actions));
  }
  CHECK(rates == std::vector<double>{1, 1, 0.25, 0.25});
  for (const ShardRecord& record : records) {
    Actions actions;
    REQUIRE_OK(replica.Replay(record, actions));
    if (record.kind == ShardRecord::Kind::kUpdate) replayed.push_back(rate_of(actions));
  }
  CHECK(replayed == rates);
  CHECK(replica.Save().learning_rate_factor == 0.25);
  REQUIRE_OK_AND_ASSIGN(ShardCore restored, ShardCore::Restore(Bsp(1), core.Save()));
  Actions actions;
  REQUIRE_OK(restored.Push(SlotPush(4, 0), actions));
  CHECK(rate_of(actions) == 0.25);
}

}  // namespace
}  // namespace capstan::server
