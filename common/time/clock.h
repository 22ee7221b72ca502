// Clock: where a shell reads the time that it hands to its core.
//
// Thread safety: thread-safe. Tests pass a ManualClock; cores never see this header.
#ifndef CAPSTAN_COMMON_TIME_CLOCK_H_
#define CAPSTAN_COMMON_TIME_CLOCK_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
};

// The machine's steady clock: unaffected by changes of the wall clock.
class SteadyClock final : public Clock {
 public:
  Instant Now() const override {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return Instant::FromOrigin(absl::FromChrono(since));
  }
};

// A clock that moves only when told to.
class ManualClock final : public Clock {
 public:
  Instant Now() const override {
    return Instant::FromOrigin(absl::Nanoseconds(nanoseconds_.load()));
  }
  void Advance(absl::Duration step) { nanoseconds_ += absl::ToInt64Nanoseconds(step); }

 private:
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TIME_CLOCK_H_
