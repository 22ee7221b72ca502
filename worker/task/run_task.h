// RunTask: runs one worker task process, from its assignment to its exit code.
#ifndef CAPSTAN_WORKER_TASK_RUN_TASK_H_
#define CAPSTAN_WORKER_TASK_RUN_TASK_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/net/grpc/credentials.h"
#include "proto/scheduler.pb.h"
#include "worker/task/computation/computation.h"

namespace capstan::worker {

class Task;

// The requests that other threads may make to a running task. Thread safety: thread-safe.
class RunningTask {
 public:
  // Makes the task give up for this reason, also while it waits for work or for a server; a task
  // that has not begun gives up once it begins. Does nothing if `why` is OK.
  void GiveUp(const absl::Status& why);
  // The task's newest capability. Empty: it has none, or no task runs.
  std::string capability();
  // For RunTask. Null: no task runs.
  void Set(Task* task);

 private:
  absl::Mutex mutex_;
  Task* task_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status gave_up_ ABSL_GUARDED_BY(mutex_);
};

// Trains, evaluates and exports as the scheduler at `scheduler` (host:port) says, until it says
// FINISH. `folder` has the task's own files. `make` makes the task's computation. Returns the
// process's exit code: 0: the task is done, or was told to stop (fenced off); 1: it failed and has
// reported why; 3: it failed and could not report it. Null credentials: plain text; null `running`:
// no other thread makes requests.
int RunTask(const v1::TaskAssignment& assignment, const std::string& scheduler,
            const Credentials* credentials, const std::string& folder, const MakeComputation& make,
            RunningTask* running = nullptr);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_RUN_TASK_H_
