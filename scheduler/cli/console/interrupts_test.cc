#include "scheduler/cli/console/interrupts.h"

#include <signal.h>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"

namespace capstan::cli::interrupts_test {
namespace {

TEST_CASE("Interrupts: a signal is remembered and ends waiting at once", "[cli]") {
  signal(SIGTERM, SIG_IGN);  // A shell does this for a background job.
  {
    const Interrupts interrupts;
    CHECK(Interrupts::Signal() == 0);
    CHECK_FALSE(Interrupts::Sleep(absl::Milliseconds(1)));
    raise(SIGTERM);
    raise(SIGINT);
    CHECK(Interrupts::Signal() == SIGTERM);  // The first signal counts.
    const absl::Time before = absl::Now();
    CHECK(Interrupts::Sleep(absl::Seconds(50)));
    CHECK(absl::Now() - before < absl::Seconds(25));
  }
  raise(SIGTERM);  // The signal is ignored again.
  const Interrupts again;
  CHECK(Interrupts::Signal() == 0);
}

}  // namespace
}  // namespace capstan::cli::interrupts_test
