#include "scheduler/core/nodes/worker_slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kNodesNamed = 3;

bool Contains(const std::vector<int>& gpus, int index) {
  return std::find(gpus.begin(), gpus.end(), index) != gpus.end();
}

// Returns the number of tasks with `need` that fit into `slots` slots with these GPUs.
int TasksOn(const DeviceNeed& need, int slots, const std::vector<int>& gpus) {
  if (need.kind != DeviceNeed::Kind::kGpu) return slots;
  if (need.index >= 0) return Contains(gpus, need.index) ? std::min(slots, 1) : 0;
  return std::min(slots, static_cast<int>(gpus.size()) / need.gpus);
}

// Returns the GPUs of `free` that a task with `need` gets.
std::vector<int> Draw(const DeviceNeed& need, std::vector<int> free) {
  const size_t wanted = static_cast<size_t>(need.gpus);
  if (need.kind == DeviceNeed::Kind::kCpu || free.size() < wanted) return {};
  if (need.index >= 0) return {need.index};
  free.resize(wanted);
  return free;
}

}  // namespace

std::vector<int> WorkerSlots::Slots::UsableGpus() const {
  std::vector<int> usable = gpus;
  std::erase_if(usable, [this](int gpu) { return lost.contains(gpu); });
  return usable;
}

std::vector<int> WorkerSlots::Slots::FreeGpus() const {
  std::vector<int> free = UsableGpus();
  std::erase_if(free, [this](int gpu) {
    return std::any_of(held.begin(), held.end(),
                       [gpu](const auto& entry) { return Contains(entry.second, gpu); });
  });
  return free;
}

void WorkerSlots::Slots::DropHeld() {
  for (auto it = held.begin(); it != held.end();) {
    const bool there = taken.contains(it->first) || releasing.contains(it->first);
    it = there ? std::next(it) : held.erase(it);
  }
}

const WorkerSlots::Slots* WorkerSlots::Find(const NodeId& node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

void WorkerSlots::AddNode(const NodeId& node, int capacity, const Devices& devices) {
  Slots slots{.capacity = capacity};
  slots.no_gpus = devices.unusable;
  if (devices.unusable.empty()) {
    for (const Gpu& gpu : devices.gpus) slots.gpus.push_back(gpu.index);
    std::sort(slots.gpus.begin(), slots.gpus.end());
  }
  nodes_.insert_or_assign(node, std::move(slots));
}

void WorkerSlots::RemoveNode(const NodeId& node) { nodes_.erase(node); }

void WorkerSlots::CloseNode(const NodeId& node) {
  if (const auto it = nodes_.find(node); it != nodes_.end()) it->second.open = false;
}

void WorkerSlots::OpenNode(const NodeId& node) {
  if (const auto it = nodes_.find(node); it != nodes_.end()) it->second.open = true;
}

std::optional<WorkerSlots::Place> WorkerSlots::Choose(const DeviceNeed& need,
                                                      const std::set<NodeId>& avoided) const {
  if (need.kind == DeviceNeed::Kind::kAny) {
    auto with_gpus = Choose({.kind = DeviceNeed::Kind::kGpu, .gpus = need.gpus}, avoided);
    return with_gpus ? with_gpus : Choose({}, avoided);
  }
  std::optional<Place> best;
  std::pair<int, int> best_rank;  // (free slots, -free GPUs); the largest is best.
  for (const auto& [id, slots] : nodes_) {
    const int free_slots = slots.free();
    if (free_slots == 0 || avoided.contains(id)) continue;
    std::vector<int> gpus = slots.FreeGpus();
    if (TasksOn(need, free_slots, gpus) == 0) continue;
    const std::pair<int, int> rank = {free_slots, -static_cast<int>(gpus.size())};
    if (best && rank <= best_rank) continue;
    best = Place{id, Draw(need, std::move(gpus))};
    best_rank = rank;
  }
  return best;
}

void WorkerSlots::Take(const Place& place, const TaskKey& task) {
  Slots& slots = nodes_[place.node];
  slots.taken.insert(task);
  if (!place.gpus.empty()) slots.held.insert_or_assign(task, place.gpus);
}

void WorkerSlots::Release(const NodeId& node, const TaskKey& task) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end() || it->second.taken.erase(task) == 0) return;
  it->second.releasing.insert(task);
}

void WorkerSlots::LoseGpus(const NodeId& node, const TaskKey& task, absl::Span<const int> gpus) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  const std::vector<int> own = GpusOf(node, task);
  std::vector<int> lost(gpus.begin(), gpus.end());
  std::erase_if(lost, [&own](int gpu) { return !Contains(own, gpu); });
  if (lost.empty()) lost = own;
  it->second.lost.insert(lost.begin(), lost.end());
}

void WorkerSlots::Report(const NodeId& node, absl::Span<const TaskState> tasks, bool current) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  Slots& slots = it->second;
  std::set<TaskKey> running;
  for (const TaskState& state : tasks) {
    if (state.exited) {
      slots.releasing.erase(state.task);
    } else {
      running.insert(state.task);
    }
  }
  if (current) slots.releasing.clear();
  for (const TaskKey& task : running) {
    if (!slots.taken.contains(task)) slots.releasing.insert(task);
  }
  slots.DropHeld();
}

std::vector<TaskKey> WorkerSlots::Desired(const NodeId& node) const {
  const Slots* slots = Find(node);
  if (slots == nullptr) return {};
  return {slots->taken.begin(), slots->taken.end()};
}

std::vector<int> WorkerSlots::GpusOf(const NodeId& node, const TaskKey& task) const {
  const Slots* slots = Find(node);
  if (slots == nullptr) return {};
  const auto it = slots->held.find(task);
  return it == slots->held.end() ? std::vector<int>() : it->second;
}

int WorkerSlots::free(const DeviceNeed& need) const {
  const bool plain = need.kind != DeviceNeed::Kind::kGpu;  // This frequent case needs no list.
  int sum = 0;
  for (const auto& [id, slots] : nodes_) {
    sum += plain ? slots.free() : TasksOn(need, slots.free(), slots.FreeGpus());
  }
  return sum;
}

int WorkerSlots::capacity(const DeviceNeed& need) const {
  const bool plain = need.kind != DeviceNeed::Kind::kGpu;
  int sum = 0;
  for (const auto& [id, slots] : nodes_) {
    if (slots.open)
      sum += plain ? slots.capacity : TasksOn(need, slots.capacity, slots.UsableGpus());
  }
  return sum;
}

int WorkerSlots::Taken(const NodeId& node) const {
  const Slots* slots = Find(node);
  return slots == nullptr ? 0 : static_cast<int>(slots->taken.size() + slots->releasing.size());
}

bool WorkerSlots::Runs(const JobId& job) const {
  const auto is_its = [&job](const TaskKey& task) { return task.job == job; };
  return std::any_of(nodes_.begin(), nodes_.end(), [&is_its](const auto& node) {
    const Slots& slots = node.second;
    return std::any_of(slots.taken.begin(), slots.taken.end(), is_its) ||
           std::any_of(slots.releasing.begin(), slots.releasing.end(), is_its);
  });
}

std::vector<int> WorkerSlots::GpusTaken(const NodeId& node) const {
  std::vector<int> taken;
  const Slots* slots = Find(node);
  if (slots == nullptr) return taken;
  for (const auto& [task, gpus] : slots->held) taken.insert(taken.end(), gpus.begin(), gpus.end());
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::vector<int> WorkerSlots::GpusLost(const NodeId& node) const {
  const Slots* slots = Find(node);
  if (slots == nullptr) return {};
  return {slots->lost.begin(), slots->lost.end()};
}

std::string WorkerSlots::WhyNoGpus(const DeviceNeed& need) const {
  std::vector<std::string> reasons;
  size_t more = 0;
  for (const auto& [id, slots] : nodes_) {
    if (!slots.open) continue;
    if (reasons.size() == kNodesNamed) {
      ++more;
      continue;
    }
    const size_t usable = slots.UsableGpus().size();
    std::string has = slots.no_gpus;
    if (usable > 0) {
      has = absl::StrCat("has ", usable, usable == 1 ? " GPU" : " GPUs",
                         need.index >= 0 ? " and not that one" : "");
    } else if (!slots.lost.empty()) {
      has = absl::StrCat("lost GPU ", absl::StrJoin(slots.lost, ", "));
    } else if (has.empty()) {
      has = "no GPU";
    }
    reasons.push_back(absl::StrCat(id, ": ", has));
  }
  if (more > 0) reasons.push_back(absl::StrCat("and ", more, " more"));
  return absl::StrJoin(reasons, "; ");
}

}  // namespace capstan::scheduler
