// CommitQueue: makes the scheduler's steps durable in order, and releases the answers of a step
// only when it is durable.
//
//   Push(writes, then) --> [ waiting ] --all waiting steps, one transaction--> then(OK) of each
//
// Steps gather while a transaction is being written, so the rate of steps does not depend on the
// rate of the disk. After a failed write no answer may be released: from then on every `then` gets
// that error. DurableState uses it.
// Thread safety: thread-safe, except that one thread calls Start and Stop.
#ifndef CAPSTAN_SCHEDULER_QUEUES_COMMIT_QUEUE_H_
#define CAPSTAN_SCHEDULER_QUEUES_COMMIT_QUEUE_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

class CommitQueue {
 public:
  // Receives OK when the step and all earlier steps are durable, otherwise the error.
  using Then = std::function<void(const absl::Status&)>;

  // `store` outlives the queue; only the queue's thread uses it. That thread calls `on_failure`
  // once, before the `then` of the steps that failed.
  CommitQueue(Store* store, std::function<void(const absl::Status&)> on_failure);
  ~CommitQueue();  // Stops.

  void Start();
  // Never waits. The callers bound the number of waiting steps: each call of a peer has one step at
  // a time.
  void Push(std::vector<StoreWrite> writes, Then then) ABSL_LOCKS_EXCLUDED(mutex_);
  // Commits all pushed steps, then ends the thread. The `then` of a later step gets kUnavailable in
  // the caller's thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Step {
    std::vector<StoreWrite> writes;
    Then then;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Commit(std::vector<Step> steps);

  // Only the queue's thread uses these.
  Store* const store_;
  const std::function<void(const absl::Status&)> on_failure_;
  absl::Status failure_;

  absl::Mutex mutex_;
  std::vector<Step> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_QUEUES_COMMIT_QUEUE_H_
