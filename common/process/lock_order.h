// SkipLockOrderChecks: switches off Abseil's search for possible deadlocks.
//
// Debian's Abseil is built with it: each lock that is taken while another one is held goes through
// a graph of all locks. Tests keep it. Thread safety: call it once, first in main.
#ifndef CAPSTAN_COMMON_PROCESS_LOCK_ORDER_H_
#define CAPSTAN_COMMON_PROCESS_LOCK_ORDER_H_

#include "absl/synchronization/mutex.h"

namespace capstan {

inline void SkipLockOrderChecks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_LOCK_ORDER_H_
