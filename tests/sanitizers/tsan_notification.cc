// absl::Notification, compiled with the sanitizer. Its fast path is an atomic flag, which TSan does
// not see in the system's Abseil; with few lines it is told again rather than forwarded.
//
// Thread safety: thread-safe.
#include <atomic>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace absl {
inline namespace debian3 {  // With another Abseil this fails to link.

void Notification::Notify() {
  MutexLock lock(&mutex_);
  notified_yet_.store(true, std::memory_order_release);
}

Notification::~Notification() {
  MutexLock lock(&mutex_);  // Notify may not have returned yet.
}

void Notification::WaitForNotification() const {
  if (HasBeenNotifiedInternal(&notified_yet_)) return;
  mutex_.LockWhen(Condition(&HasBeenNotifiedInternal, &notified_yet_));
  mutex_.Unlock();
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  if (HasBeenNotifiedInternal(&notified_yet_)) return true;
  const bool notified =
      mutex_.LockWhenWithTimeout(Condition(&HasBeenNotifiedInternal, &notified_yet_), timeout);
  mutex_.Unlock();
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  if (HasBeenNotifiedInternal(&notified_yet_)) return true;
  const bool notified =
      mutex_.LockWhenWithDeadline(Condition(&HasBeenNotifiedInternal, &notified_yet_), deadline);
  mutex_.Unlock();
  return notified;
}

}  // namespace debian3
}  // namespace absl
