#include "worker/task/task_activity.h"

namespace capstan::worker {

Progress TaskActivity::listener() {
  return [this](const std::string& what, int64_t more) { Add(what, more); };
}

void TaskActivity::Add(const std::string& what, int64_t more) {
  absl::MutexLock lock(&mutex_);
  if (activity_.what() != what) activity_.Clear();
  activity_.set_what(what);
  activity_.set_done(activity_.done() + more);
}

void TaskActivity::End() {
  absl::MutexLock lock(&mutex_);
  activity_.Clear();
}

void TaskActivity::AddTo(v1::SyncTaskRequest& report) {
  absl::MutexLock lock(&mutex_);
  if (!activity_.what().empty()) *report.mutable_activity() = activity_;
}

}  // namespace capstan::worker
