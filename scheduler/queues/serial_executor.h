// SerialExecutor: one thread that runs posted functions in order.
//
//   Post --> [ queue, at most queue_max ] --> the thread
//
// Thread safety: thread-safe, except that one thread calls Start and Stop.
#ifndef CAPSTAN_SCHEDULER_QUEUES_SERIAL_EXECUTOR_H_
#define CAPSTAN_SCHEDULER_QUEUES_SERIAL_EXECUTOR_H_

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
  // Runs `work` after all earlier functions. Waits while the queue is full.
  void Post(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // Same as Post(), but returns false if the queue is full or the executor is stopped.
  bool TryPost(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs all posted functions, then ends the thread. A later Post() runs its function in the
  // caller's thread. Idempotent.
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

#endif  // CAPSTAN_SCHEDULER_QUEUES_SERIAL_EXECUTOR_H_
