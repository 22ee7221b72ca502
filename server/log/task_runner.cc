#include "server/log/task_runner.h"

#include <utility>

namespace capstan::server {

TaskRunner::TaskRunner(Execute execute) : execute_(std::move(execute)) {
  if (execute_ == nullptr) thread_ = std::thread([this] { RunThread(); });
}

TaskRunner::~TaskRunner() { Stop(); }

void TaskRunner::Run(Task task) {
  {
    const absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    if (execute_ == nullptr) {
      tasks_.push_back(std::move(task));
      return;
    }
  }
  execute_(std::move(task));
}

void TaskRunner::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void TaskRunner::RunThread() {
  const auto due = [this]()
                       ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); };
  while (true) {
    Task task;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&due));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace capstan::server
