// RenewedCapability: a reader's capability (capability.h), which is replaced before it expires.
//
// The scheduler renews a task's capability in its answers to the task's reports; a reader reports
// nothing, so it asks. Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SECURITY_RENEWED_CAPABILITY_H_
#define CAPSTAN_COMMON_SECURITY_RENEWED_CAPABILITY_H_

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/capability.h"

namespace capstan {

class RenewedCapability {
 public:
  // A newer one is asked for from this long before the expiry on, so that a reader can do without
  // the scheduler for as long.
  static constexpr absl::Duration kAskBefore = absl::Hours(12);
  static constexpr absl::Duration kAskEvery = absl::Minutes(1);  // Whatever the last answer was.

  // Gets a new capability from the scheduler.
  using Ask = std::function<absl::StatusOr<std::string>()>;

  // `bytes`: the present capability; empty or damaged: it is never replaced.
  RenewedCapability(std::string bytes, Ask ask) : ask_(std::move(ask)) { Set(std::move(bytes)); }

  // Returns the newest one, after it has asked for another if that is due. After an error the
  // present one stays, and servers say when it has expired. `now` is by the wall clock.
  const std::string& Get(absl::Time now) {
    if (now >= ask_at_) {
      ask_at_ = now + kAskEvery;
      absl::StatusOr<std::string> newer = ask_();
      if (newer.ok()) Set(*std::move(newer), ask_at_);
    }
    return bytes_;
  }

 private:
  void Set(std::string bytes, absl::Time earliest = absl::InfinitePast()) {
    const absl::StatusOr<Capability> capability = DecodeCapability(bytes);
    ask_at_ = capability.ok() ? std::max(earliest, capability->expiry - kAskBefore)
                              : absl::InfiniteFuture();
    bytes_ = std::move(bytes);
  }

  const Ask ask_;
  std::string bytes_;
  absl::Time ask_at_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_RENEWED_CAPABILITY_H_
