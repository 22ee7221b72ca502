// SerialExecutor: one thread that runs what it is given, in order.
//
//   Post --> [ queue, at most queue_max ] --> the thread
//
// Thread safety: thread-safe, except that Stop is one thread's.
#ifndef CAPSTAN_SCHEDULER_SERIAL_EXECUTOR_H_
#define CAPSTAN_SCHEDULER_SERIAL_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace capstan::scheduler {

class SerialExecutor {
 public:
  explicit SerialExecutor(size_t queue_max);  // > 0.
  ~SerialExecutor();                          // Stops.

  void Start();
  // Runs `work` after all that was posted before. Waits while the queue is full.
  void Post(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Post, but refuses (false) when the queue is full.
  bool TryPost(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs what was posted, then ends the thread; what comes later runs in the caller's thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || queue_.size() < queue_max_;
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || !queue_.empty(); }

  const size_t queue_max_;

  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SERIAL_EXECUTOR_H_
