// CallTracker: counts the live objects that gRPC's threads may be the last to release, and waits
// until none is left.
//
// Objects of a call hold its channel (by the ClientContext). The last callback channel of a process
// takes gRPC's own threads down with it, so it must not die on one of them: the owner of channels
// waits here before it releases them.
// Thread safety: thread-safe. The tracker outlives the objects that it made.
#ifndef CAPSTAN_COMMON_NET_DATA_CALL_TRACKER_H_
#define CAPSTAN_COMMON_NET_DATA_CALL_TRACKER_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace capstan {

class CallTracker {
 public:
  template <typename T, typename... Args>
  std::shared_ptr<T> Make(Args&&... args) {
    {
      absl::MutexLock lock(&mutex_);
      ++alive_;
    }
    return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [this](T* object) {
      delete object;
      absl::MutexLock lock(&mutex_);
      --alive_;
    });
  }

  // Waits until all that was made has been destroyed.
  void WaitUntilGone() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* alive) { return *alive == 0; }, &alive_));
  }

 private:
  absl::Mutex mutex_;
  int alive_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_CALL_TRACKER_H_
