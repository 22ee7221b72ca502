// InstallMemory: accounts for the memory of installs that are on their way to replicas here: the
// requests of all streams of one job together. It is charged to the job's budget.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_ENGINE_INSTALL_MEMORY_H_
#define CAPSTAN_SERVER_ENGINE_INSTALL_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace capstan::server {

class InstallMemory : public std::enable_shared_from_this<InstallMemory> {
 public:
  static constexpr int64_t kBytesMax = int64_t{2} << 30;  // Limit for one job.

  // Sets the charge to `bytes`. On an error nothing changes.
  using Account = std::function<absl::Status(int64_t bytes)>;
  // The memory of one stream; given back when the last copy goes.
  using Share = std::shared_ptr<const int64_t>;

  // Must be owned by a shared_ptr: streams outlive jobs.
  explicit InstallMemory(Account account) : account_(std::move(account)) {}

  // Errors: kResourceExhausted  beyond kBytesMax or the job's budget; names what is asked for and
  //         held.
  absl::StatusOr<Share> Take(int64_t bytes);

  int64_t held() const;

 private:
  void GiveBack(int64_t bytes);

  const Account account_;
  mutable absl::Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_INSTALL_MEMORY_H_
