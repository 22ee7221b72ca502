// TaskActivity: what a task does beside its batches, counted as it goes on, for its reports.
//
// One that is told of the same for minutes is taken for hung by the scheduler.
// Thread safety: thread-safe.
#ifndef CAPSTAN_WORKER_TASK_TASK_ACTIVITY_H_
#define CAPSTAN_WORKER_TASK_TASK_ACTIVITY_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/types/progress.h"
#include "proto/scheduler.pb.h"

namespace capstan::worker {

class TaskActivity {
 public:
  // To be told by what takes long. Lives no longer than this.
  Progress listener();
  void End();  // What was counted is done with.
  // Nothing if there is nothing to tell.
  void AddTo(v1::SyncTaskRequest& report);

 private:
  void Add(const std::string& what, int64_t more);

  absl::Mutex mutex_;
  v1::Activity activity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_ACTIVITY_H_
