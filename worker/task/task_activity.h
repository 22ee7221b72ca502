// TaskActivity: counts the progress of a task's work beside its batches, for its reports.
//
// If the reported progress does not change for minutes, the scheduler takes the task for hung.
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
  // A callback that long work calls with its progress. Must not be used after this is destroyed.
  Progress listener();
  void End();  // The work is done; its count is dropped.
  // Adds the activity to the report, if there is one.
  void AddTo(v1::SyncTaskRequest& report);

 private:
  void Add(const std::string& what, int64_t more);

  absl::Mutex mutex_;
  v1::Activity activity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_ACTIVITY_H_
