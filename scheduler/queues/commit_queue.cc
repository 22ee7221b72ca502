#include "scheduler/queues/commit_queue.h"

#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace capstan::scheduler {
namespace {

// Returns `writes` with only the last write of each key.
std::vector<StoreWrite> Newest(std::vector<StoreWrite> writes) {
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < writes.size(); ++i) last[writes[i].key] = i;
  std::vector<StoreWrite> newest;
  for (size_t i = 0; i < writes.size(); ++i) {
    if (last.at(writes[i].key) == i) newest.push_back(std::move(writes[i]));
  }
  return newest;
}

}  // namespace

CommitQueue::CommitQueue(Store* store, std::function<void(const absl::Status&)> on_failure)
    : store_(store), on_failure_(std::move(on_failure)) {}

CommitQueue::~CommitQueue() { Stop(); }

void CommitQueue::Start() { thread_ = std::thread(&CommitQueue::Run, this); }

void CommitQueue::Push(std::vector<StoreWrite> writes, Then then) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stopped_) {
      waiting_.push_back({std::move(writes), std::move(then)});
      return;
    }
  }
  then(absl::UnavailableError("the scheduler is shutting down"));
}

void CommitQueue::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void CommitQueue::Run() {
  while (true) {
    std::vector<Step> steps;
    {
      const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopped_ || !waiting_.empty();
      };
      absl::MutexLock lock(&mutex_, absl::Condition(&woken));
      if (waiting_.empty()) return;
      steps.swap(waiting_);
    }
    Commit(std::move(steps));
  }
}

void CommitQueue::Commit(std::vector<Step> steps) {
  std::vector<StoreWrite> writes;
  for (Step& step : steps) {
    writes.insert(writes.end(), std::make_move_iterator(step.writes.begin()),
                  std::make_move_iterator(step.writes.end()));
  }
  if (failure_.ok() && !writes.empty()) {
    failure_ = store_->Write(Newest(std::move(writes)));
    if (!failure_.ok()) on_failure_(failure_);
  }
  for (const Step& step : steps) step.then(failure_);
}

}  // namespace capstan::scheduler
