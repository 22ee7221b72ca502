// CommitQueue: makes the scheduler's steps durable in order, and lets what they said out only then.
//
//   Push(writes, then) --> [ waiting ] --all that has gathered, one transaction--> then(OK), each
//
// While a transaction is on its way to the disk the next steps gather, so the rate of steps is not
// bounded by that of the disk. Nothing may be said after a write that failed: from then on every
// `then` gets that error.
// Thread safety: thread-safe, except that Start and Stop are one thread's.
#ifndef CAPSTAN_SCHEDULER_COMMIT_QUEUE_H_
#define CAPSTAN_SCHEDULER_COMMIT_QUEUE_H_

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
  // Gets OK once the step and all before it are durable, else why they are not.
  using Then = std::function<void(const absl::Status&)>;

  // `store` outlives the queue; only the queue's thread uses it. `on_failure` is called there,
  // once, before the `then` of the steps that failed.
  CommitQueue(Store* store, std::function<void(const absl::Status&)> on_failure);
  ~CommitQueue();  // Stops.

  void Start();
  // Never waits: who pushes bounds what is under way (a call of a peer has one step at a time).
  void Push(std::vector<StoreWrite> writes, Then then) ABSL_LOCKS_EXCLUDED(mutex_);
  // Commits what was pushed, then ends the thread; what comes later gets kUnavailable, in the
  // caller's thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Step {
    std::vector<StoreWrite> writes;
    Then then;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Commit(std::vector<Step> steps);

  // The thread's only.
  Store* const store_;
  const std::function<void(const absl::Status&)> on_failure_;
  absl::Status failure_;

  absl::Mutex mutex_;
  std::vector<Step> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_COMMIT_QUEUE_H_
