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

// The time by the clock that has gone on for longer. So what is over by either of them is over.
absl::Duration TimePassed(const MachineClocks& start, const MachineClocks& now);

class LeaseClock final : public Clock {
 public:
  Instant Now() const override;

 private:
  // A process's first look at it is not the origin: Instant() is a time long past.
  static constexpr absl::Duration kOrigin = absl::Hours(24 * 365);
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TIME_LEASE_CLOCK_H_
