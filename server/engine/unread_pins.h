// UnreadPins: pins of captured rows that nobody reads any more, until their job ends them: the
// thread that drops rows may hold the job's lock, so that their pins cannot always end at once.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_ENGINE_UNREAD_PINS_H_
#define CAPSTAN_SERVER_ENGINE_UNREAD_PINS_H_

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/types/ids.h"
#include "server/store/kept_rows.h"

namespace capstan::server {

class UnreadPins {
 public:
  void Add(const ShardKey& shard, PinId pin) {
    absl::MutexLock lock(&mutex_);
    pins_.emplace_back(shard, pin);
  }
  std::vector<std::pair<ShardKey, PinId>> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(pins_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::pair<ShardKey, PinId>> pins_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_UNREAD_PINS_H_
