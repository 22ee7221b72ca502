// CurrentCapability: the newest capability of a task (common/security/capability.h): the one that
// its assignment brought, until the scheduler renews it.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_WORKER_TASK_CURRENT_CAPABILITY_H_
#define CAPSTAN_WORKER_TASK_CURRENT_CAPABILITY_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/security/capability.h"

namespace capstan::worker {

class CurrentCapability {
 public:
  explicit CurrentCapability(std::string bytes) : bytes_(std::move(bytes)) {}

  void Set(std::string bytes) {
    absl::MutexLock lock(&mutex_);
    bytes_ = std::move(bytes);
  }
  std::string Get() const {  // Empty: the task has none.
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }
  // The value of SyncTaskRequest.capability_expiry_unix_s; 0: the task has no capability.
  int64_t ExpiryUnixSeconds() const {
    const absl::StatusOr<Capability> capability = DecodeCapability(Get());
    return capability.ok() ? absl::ToUnixSeconds(capability->expiry) : 0;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_CURRENT_CAPABILITY_H_
