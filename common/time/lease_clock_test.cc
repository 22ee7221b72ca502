#include "common/time/lease_clock.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan::lease_clock_test {
namespace {

TEST_CASE("LeaseClock: a lease does not outlast a suspended machine (issue 20)", "[common]") {
  const MachineClocks start = {.monotonic = absl::Seconds(100),
                               .with_suspension = absl::Seconds(107)};
  const auto at = [&](absl::Duration monotonic, absl::Duration with_suspension) {
    return Instant::FromOrigin(TimePassed(start, {.monotonic = start.monotonic + monotonic,
                                              .with_suspension =
                                                  start.with_suspension + with_suspension}));
  };
  const Instant lease = at({}, {}) + absl::Milliseconds(400);
  CHECK(at(absl::Milliseconds(399), absl::Milliseconds(399)) < lease);
  // Suspended for 10 s, when nothing of the lease had been used up.
  CHECK(at({}, absl::Seconds(10)) >= lease);
  // The clock that should count that stands still: then the other one decides.
  CHECK(at(absl::Milliseconds(400), {}) >= lease);
}

TEST_CASE("LeaseClock: it never goes back, and begins behind the default Instant", "[common]") {
  const LeaseClock clock;
  Instant last;
  for (int i = 0; i < 10'000; ++i) {
    const Instant now = clock.Now();
    REQUIRE(now > Instant());
    REQUIRE(now >= last);
    last = now;
  }
}

constexpr int kRefused = 2;

// Looks in a time namespace whose machine has been suspended for 1000 s more than ours.
int LookWhereTimeWasSuspended() {
  if (unshare(CLONE_NEWTIME) != 0) return kRefused;
  const int offsets = open("/proc/self/timens_offsets", O_WRONLY);
  const char suspended[] = "boottime 1000 0";
  if (write(offsets, suspended, sizeof(suspended) - 1) != sizeof(suspended) - 1) return kRefused;
  close(offsets);
  const pid_t child = fork();  // The namespace is its children's.
  if (child == 0) {
    const MachineClocks clocks = ReadMachineClocks();
    _exit(clocks.with_suspension - clocks.monotonic >= absl::Seconds(1000) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_CASE("LeaseClock: the machine's clock that counts suspension is read", "[common]") {
  const pid_t child = fork();
  if (child == 0) _exit(LookWhereTimeWasSuspended());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kRefused) {
    WARN("SKIPPED: time namespaces are not allowed here");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace capstan::lease_clock_test
