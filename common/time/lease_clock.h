// LeaseClock: the machine's time for rights that end by themselves, such as a server's read lease.
//
// A clock that stands still while the machine is suspended (CLOCK_MONOTONIC, SteadyClock) would let
// such a right outlast the promise that it rests on: the scheduler's time goes on meanwhile.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_TIME_LEASE_CLOCK_H_
#define CAPSTAN_COMMON_TIME_LEASE_CLOCK_H_

#include "absl/time/time.h"
#include "common/time/clock.h"
#include "common/time/instant.h"

namespace capstan {

// The times of two clocks of the machine. Neither follows the wall clock.
struct MachineClocks {
  absl::Duration monotonic;        // Stands still while the machine is suspended.
  absl::Duration with_suspension;  // Goes on.
};
MachineClocks ReadMachineClocks();

// Returns the longer time of the two clocks, so that a right that is over by either clock is over.
absl::Duration TimePassed(const MachineClocks& start, const MachineClocks& now);

class LeaseClock final : public Clock {
 public:
  Instant Now() const override;

 private:
  // The first reading of a process; Instant() is long before it.
  static constexpr absl::Duration kOrigin = absl::Hours(24 * 365);
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TIME_LEASE_CLOCK_H_
