#include "scheduler/core/work/job_tasks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

JobTasks::JobTasks(int workers, const Options& options)
    : options_(options), tasks_(static_cast<size_t>(workers)) {
  for (int rank = 0; rank < workers; ++rank) tasks_[static_cast<size_t>(rank)].rank = Rank(rank);
}

void JobTasks::Place(Rank rank, Incarnation incarnation, const NodeId& node,
                     const std::string& address, Instant now) {
  Task fresh{.rank = rank, .state = Task::State::kStarting, .incarnation = incarnation};
  fresh.node = node;
  fresh.address = address;
  fresh.deadline = now + options_.start_limit;
  fresh.last_report = now;
  fresh.assignment.generation = Generation(1);
  at(rank) = fresh;
}

void JobTasks::Renew(Task& task, bool preparing, Instant now) {
  if (!task.live()) task.state = preparing ? Task::State::kPreparing : Task::State::kLive;
  task.last_report = std::max(task.last_report, now);
  task.deadline = task.last_report + options_.lease;
}

void JobTasks::End(Rank rank) {
  Task& task = at(rank);
  task.state = Task::State::kUnplaced;
  task.idle = false;
  task.wait = {};
  task.activity = {};
  task.contradicts_since.reset();
  task.stuck_since.reset();
  changed_.erase(rank);
}

Task* JobTasks::FindIncarnation(Rank rank, Incarnation incarnation) {
  if (rank.value() < 0 || rank.value() >= static_cast<int64_t>(tasks_.size())) return nullptr;
  Task& task = at(rank);
  const bool same = task.incarnation == incarnation || Planted(PlantedBug::kTakeReportOfTheDead);
  return task.placed() && same ? &task : nullptr;
}

const Task* JobTasks::Find(const TaskKey& key) const {
  const int64_t rank = key.rank.value();
  if (rank < 0 || rank >= static_cast<int64_t>(tasks_.size())) return nullptr;
  const Task& task = at(key.rank);
  return task.placed() && task.incarnation == key.incarnation ? &task : nullptr;
}

std::vector<Rank> JobTasks::TakeChanged() {
  std::vector<Rank> ranks(changed_.begin(), changed_.end());
  changed_.clear();
  return ranks;
}

std::vector<Rank> JobTasks::Unplaced() const {
  std::vector<Rank> ranks;
  for (const Task& task : tasks_) {
    if (!task.placed()) ranks.push_back(task.rank);
  }
  return ranks;
}

std::vector<Rank> JobTasks::Live() const {
  std::vector<Rank> ranks;
  for (const Task& task : tasks_) {
    if (task.live()) ranks.push_back(task.rank);
  }
  return ranks;
}

std::vector<Rank> JobTasks::OnNode(const NodeId& node) const {
  std::vector<Rank> ranks;
  for (const Task& task : tasks_) {
    if (task.placed() && task.node == node) ranks.push_back(task.rank);
  }
  return ranks;
}

std::vector<Rank> JobTasks::Expired(Instant now) const {
  std::vector<Rank> ranks;
  for (const Task& task : tasks_) {
    if (task.placed() && now >= task.deadline) ranks.push_back(task.rank);
  }
  return ranks;
}

absl::Status JobTasks::Check(size_t workers) const {
  if (tasks_.size() != workers) {
    return absl::DataLossError(
        absl::StrCat("tasks: ", tasks_.size(), ", expected one for each of ", workers, " workers"));
  }
  absl::Status status;
  for (int rank = 0; rank < static_cast<int>(workers); ++rank) {
    const Task& task = at(Rank(rank));
    status.Update(CheckRange("rank of a task", task.rank.value(), rank, rank));
    status.Update(CheckCount("incarnation of a task", task.incarnation.value()));
    status.Update(CheckCount("iterations of a task", task.iterations.value()));
  }
  return status;
}

void JobTasks::Restored(Instant now, absl::Duration rejoin) {
  for (Task& task : tasks_) {
    if (!task.placed()) continue;
    const bool starting = task.state == Task::State::kStarting;
    task.deadline = now + rejoin + (starting ? options_.start_limit : options_.lease);
    if (task.contradicts_since) task.contradicts_since = now;
    if (task.stuck_since) task.stuck_since = now;
  }
}

int JobTasks::CountIn(Task::State state) const {
  return static_cast<int>(std::count_if(tasks_.begin(), tasks_.end(),
                                        [state](const Task& task) { return task.state == state; }));
}

Incarnation JobTasks::LastIncarnation() const {
  Incarnation last;
  for (const Task& task : tasks_) last = std::max(last, task.incarnation);
  return last;
}

Iteration JobTasks::HighestIteration() const {
  Iteration highest;
  for (const Task& task : tasks_) {
    if (task.live()) highest = std::max(highest, task.iterations);
  }
  return highest;
}

Instant JobTasks::NextDeadline() const {
  Instant next = Instant::InfiniteFuture();
  for (const Task& task : tasks_) {
    if (task.placed()) next = std::min(next, task.deadline);
  }
  return next;
}

}  // namespace capstan::scheduler
