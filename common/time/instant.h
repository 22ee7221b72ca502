// Instant: a point on a monotonic clock whose origin is unspecified; durations are absl::Duration.
//
// Cores receive an Instant with each message and never read a clock; the real clock is
// common/time/clock.h, which only shells may use. Thread safety: a value.
#ifndef CAPSTAN_COMMON_TIME_INSTANT_H_
#define CAPSTAN_COMMON_TIME_INSTANT_H_

#include <compare>

#include "absl/time/time.h"

namespace capstan {

class Instant {
 public:
  constexpr Instant() = default;  // The origin.
  static constexpr Instant FromOrigin(absl::Duration since_origin) { return Instant(since_origin); }
  static constexpr Instant InfiniteFuture() { return Instant(absl::InfiniteDuration()); }

  constexpr absl::Duration SinceOrigin() const { return since_origin_; }

  friend Instant operator+(Instant t, absl::Duration d) { return Instant(t.since_origin_ + d); }
  friend Instant operator-(Instant t, absl::Duration d) { return Instant(t.since_origin_ - d); }
  friend absl::Duration operator-(Instant a, Instant b) {
    return a.since_origin_ - b.since_origin_;
  }
  friend constexpr bool operator==(Instant a, Instant b) {
    return a.since_origin_ == b.since_origin_;
  }
  friend constexpr bool operator!=(Instant a, Instant b) { return !(a == b); }
  friend constexpr bool operator<(Instant a, Instant b) {
    return a.since_origin_ < b.since_origin_;
  }
  friend constexpr bool operator>(Instant a, Instant b) { return b < a; }
  friend constexpr bool operator<=(Instant a, Instant b) { return !(b < a); }
  friend constexpr bool operator>=(Instant a, Instant b) { return !(a < b); }

 private:
  constexpr explicit Instant(absl::Duration since_origin) : since_origin_(since_origin) {}

  absl::Duration since_origin_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TIME_INSTANT_H_
