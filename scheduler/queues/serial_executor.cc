#include "scheduler/queues/serial_executor.h"

#include <utility>

namespace capstan::scheduler {

SerialExecutor::SerialExecutor(size_t queue_max) : queue_max_(queue_max) {}

SerialExecutor::~SerialExecutor() { Stop(); }

void SerialExecutor::Start() {
  thread_ = std::thread([this] { Run(); });
}

void SerialExecutor::Post(std::function<void()> work) {
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &SerialExecutor::HasRoom));
    if (!stopped_) {
      queue_.push_back(std::move(work));
      return;
    }
  }
  work();
}

bool SerialExecutor::TryPost(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (stopped_ || queue_.size() >= queue_max_) return false;
  queue_.push_back(std::move(work));
  return true;
}

void SerialExecutor::Run() {
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &SerialExecutor::HasWork));
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

void SerialExecutor::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace capstan::scheduler
