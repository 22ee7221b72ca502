// FirstError: the first error that any of several threads has met.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_STORE_TABLES_FIRST_ERROR_H_
#define CAPSTAN_SERVER_STORE_TABLES_FIRST_ERROR_H_

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace capstan::server {

class FirstError {
 public:
  // Ignores OK, and every error but the first.
  void Update(const absl::Status& status) {
    if (status.ok()) return;
    absl::MutexLock lock(&mutex_);
    first_.Update(status);
    is_set_.store(true, std::memory_order_release);
  }
  absl::Status Get() const {  // OK: there has been none; then it is cheap.
    if (!is_set_.load(std::memory_order_acquire)) return absl::OkStatus();
    absl::MutexLock lock(&mutex_);
    return first_;
  }

 private:
  std::atomic<bool> is_set_ = false;
  mutable absl::Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_TABLES_FIRST_ERROR_H_
