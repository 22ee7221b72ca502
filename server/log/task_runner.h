// TaskRunner: runs tasks one after the other, on a thread of its own or through a given executor
// (the simulator's).
//
// Thread safety: thread-safe, except that Stop is one thread's. Tasks may call Run.
#ifndef CAPSTAN_SERVER_LOG_TASK_RUNNER_H_
#define CAPSTAN_SERVER_LOG_TASK_RUNNER_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace capstan::server {

class TaskRunner {
 public:
  using Task = std::function<void()>;
  using Execute = std::function<void(Task)>;

  // `execute` runs each task later, never before it has returned. Null: a thread is started.
  explicit TaskRunner(Execute execute);
  ~TaskRunner();  // Stops.

  // The queue has no bound of its own: the owner keeps few tasks waiting, and states how many.
  // Ignored once stopped.
  void Run(Task task);
  void Stop();  // Finishes the tasks that wait for its own thread. Idempotent.

 private:
  void RunThread();

  const Execute execute_;
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_TASK_RUNNER_H_
