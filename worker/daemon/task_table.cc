#include "worker/daemon/task_table.h"

#include <algorithm>
#include <utility>

namespace capstan::worker {

void TaskTable::TakeDesired(const std::vector<TaskName>& desired, TaskActions* actions) {
  const std::set<TaskName> wanted(desired.begin(), desired.end());
  for (auto it = tasks_.begin(); it != tasks_.end();) {
    Entry& entry = it->second;
    const bool was_desired = std::exchange(entry.desired, wanted.contains(it->first));
    if (entry.desired) {
      ++it;
    } else if (entry.exited) {
      it = tasks_.erase(it);
    } else {
      if (was_desired && !stopping_) actions->terminate.push_back(entry.process);
      ++it;
    }
  }
  if (stopping_) return;
  for (const TaskName& task : wanted) {
    if (tasks_.contains(task)) continue;
    ++last_process_;
    tasks_[task].process = last_process_;
    running_.insert(last_process_);
    actions->start.push_back({last_process_, task});
  }
}

void TaskTable::ProcessEnded(ProcessId process, TaskEnd end, TaskActions* actions) {
  if (running_.erase(process) == 0) return;
  const auto it = std::find_if(tasks_.begin(), tasks_.end(),
                               [&](const auto& item) { return item.second.process == process; });
  if (it == tasks_.end()) return;  // The process is of an earlier incarnation.
  actions->report = true;
  if (!it->second.desired) {
    tasks_.erase(it);
    return;
  }
  it->second.exited = true;
  it->second.end = std::move(end);
}

void TaskTable::NewIncarnation(TaskActions* actions) {
  tasks_.clear();
  actions->kill.assign(running_.begin(), running_.end());
}

void TaskTable::StopAll(TaskActions* actions) {
  stopping_ = true;
  actions->terminate.assign(running_.begin(), running_.end());
}

std::vector<TaskReport> TaskTable::Report() const {
  std::vector<TaskReport> reports;
  reports.reserve(tasks_.size());
  for (const auto& [task, entry] : tasks_) reports.push_back({task, entry.exited, entry.end});
  return reports;
}

bool TaskTable::IsRunning(const TaskName& task) const {
  const auto it = tasks_.find(task);
  return it != tasks_.end() && !it->second.exited;
}

}  // namespace capstan::worker
