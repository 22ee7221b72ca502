#include "scheduler/cli/client/client.h"

#include <catch2/catch.hpp>

#include "common/net/testing/fake_scheduler.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::client_test {
namespace {

// FakeScheduler answers only the calls of daemons, not those of users.
TEST_CASE("SchedulerClient: what is no scheduler is named as such (issue 21)", "[cli]") {
  capstan::testing::FakeScheduler daemon;
  SchedulerClient client({daemon.address(), "--scheduler"});
  CHECK_STATUS(client.ListNodes().status(), absl::StatusCode::kFailedPrecondition,
               "what listens at " + daemon.address() + " (from --scheduler) is no Capstan");
}

// gRPC makes no progress on a connection during calls that fail at once, so it found a returned
// scheduler up to five seconds late.
TEST_CASE("SchedulerClient: one that listens again is found by the next calls (issue 21)",
          "[cli]") {
  constexpr int kCallsMax = 4;
  capstan::testing::FakeScheduler daemon;
  SchedulerClient client({daemon.address(), "--scheduler"});
  daemon.Down();
  for (int call = 0; call < 3; ++call) {
    CHECK_STATUS(client.ListNodes().status(), absl::StatusCode::kUnavailable, "cannot be reached");
  }
  daemon.Up();
  int calls = 1;
  while (absl::IsUnavailable(client.ListNodes().status()) && calls < kCallsMax) ++calls;
  CHECK(calls < kCallsMax);
}

}  // namespace
}  // namespace capstan::cli::client_test
