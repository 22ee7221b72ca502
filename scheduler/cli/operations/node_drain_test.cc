#include "scheduler/cli/operations/node_drain.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <vector>

#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/operations/testing/fake_operations.h"

namespace capstan::cli::node_drain_test {
namespace {

v1::DrainNodeResponse Left(int shards, bool safe = false) {
  v1::DrainNodeResponse state;
  state.set_shards(shards);
  state.set_safe_to_stop(safe);
  return state;
}

TEST_CASE("DrainUntilSafe: asks until the node is safe to stop", "[cli]") {
  const Interrupts interrupts;
  const FakeOperations fake({.drains = {Left(3), Left(3), Left(1), Left(0, true)}});
  SchedulerClient client({fake.address(), "test"});
  CHECK(DrainUntilSafe(client, "server-1", OutputFormat::kTable) == kExitDone);
  REQUIRE(fake.drain_requests().size() == 4);
  CHECK(fake.drain_requests()[0].node_id() == "server-1");
  CHECK_FALSE(fake.drain_requests()[0].cancel());
  CHECK(fake.drain_requests()[0].wait_limit_ms() > 0);
}

TEST_CASE("DrainUntilSafe: a scheduler that is away for a while is asked again", "[cli]") {
  const Interrupts interrupts;
  const FakeOperations fake({.drains = {Left(3), Left(0, true)}, .away = {0}});
  SchedulerClient client({fake.address(), "test"});
  CHECK(DrainUntilSafe(client, "server-1", OutputFormat::kTable) == kExitDone);
  CHECK(fake.drain_requests().size() == 3);
}

TEST_CASE("DrainUntilSafe: a signal ends the waiting, not the drain", "[cli]") {
  const Interrupts interrupts;
  const FakeOperations fake({.drains = {Left(3)}, .on_drain = [] { raise(SIGINT); }});
  SchedulerClient client({fake.address(), "test"});
  CHECK(DrainUntilSafe(client, "server-1", OutputFormat::kJson) == 130);
  const std::vector<v1::DrainNodeRequest> requests = fake.drain_requests();
  for (const v1::DrainNodeRequest& request : requests) CHECK_FALSE(request.cancel());
}

TEST_CASE("CancelDrain: one call; an unknown node is the user's mistake", "[cli]") {
  const FakeOperations fake({.drains = {Left(3)}});
  SchedulerClient client({fake.address(), "test"});
  CHECK(CancelDrain(client, "server-1", OutputFormat::kTable) == kExitDone);
  REQUIRE(fake.drain_requests().size() == 1);
  CHECK(fake.drain_requests()[0].cancel());
  CHECK(CancelDrain(client, "nobody", OutputFormat::kTable) == kExitUsage);
  const Interrupts interrupts;
  CHECK(DrainUntilSafe(client, "nobody", OutputFormat::kTable) == kExitUsage);
}

}  // namespace
}  // namespace capstan::cli::node_drain_test
