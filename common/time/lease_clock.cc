#include "common/time/lease_clock.h"

#include <time.h>

#include <algorithm>

namespace capstan {
namespace {

absl::Duration Read(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);  // It does not fail for these clocks.
  return absl::DurationFromTimespec(time);
}

}  // namespace

MachineClocks ReadMachineClocks() {
  return {.monotonic = Read(CLOCK_MONOTONIC), .with_suspension = Read(CLOCK_BOOTTIME)};
}

absl::Duration TimePassed(const MachineClocks& start, const MachineClocks& now) {
  return std::max(now.monotonic - start.monotonic, now.with_suspension - start.with_suspension);
}

Instant LeaseClock::Now() const {
  static const MachineClocks start = ReadMachineClocks();
  return Instant::FromOrigin(kOrigin + TimePassed(start, ReadMachineClocks()));
}

}  // namespace capstan
