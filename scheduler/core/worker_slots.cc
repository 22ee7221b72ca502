#include "scheduler/core/worker_slots.h"

namespace capstan::scheduler {

void WorkerSlots::AddNode(const NodeId& node, int capacity) {
  nodes_.insert_or_assign(node, Slots{.capacity = capacity, .taken = {}, .releasing = {}});
}

void WorkerSlots::RemoveNode(const NodeId& node) { nodes_.erase(node); }

void WorkerSlots::CloseNode(const NodeId& node) {
  if (const auto it = nodes_.find(node); it != nodes_.end()) it->second.open = false;
}

void WorkerSlots::OpenNode(const NodeId& node) {
  if (const auto it = nodes_.find(node); it != nodes_.end()) it->second.open = true;
}

std::optional<NodeId> WorkerSlots::Choose() const {
  const NodeId* best = nullptr;
  int most = 0;
  for (const auto& [id, slots] : nodes_) {
    if (slots.free() <= most) continue;
    best = &id;
    most = slots.free();
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

void WorkerSlots::Take(const NodeId& node, const TaskKey& task) { nodes_[node].taken.insert(task); }

void WorkerSlots::Release(const NodeId& node, const TaskKey& task) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end() || it->second.taken.erase(task) == 0) return;
  it->second.releasing.insert(task);
}

void WorkerSlots::Report(const NodeId& node, absl::Span<const TaskState> tasks, bool current) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  Slots& slots = it->second;
  absl::btree_set<TaskKey> running;
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
}

std::vector<TaskKey> WorkerSlots::Desired(const NodeId& node) const {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return {};
  return {it->second.taken.begin(), it->second.taken.end()};
}

int WorkerSlots::free() const {
  int sum = 0;
  for (const auto& [id, slots] : nodes_) sum += slots.free();
  return sum;
}

int WorkerSlots::capacity() const {
  int sum = 0;
  for (const auto& [id, slots] : nodes_) sum += slots.open ? slots.capacity : 0;
  return sum;
}

int WorkerSlots::Taken(const NodeId& node) const {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return 0;
  return static_cast<int>(it->second.taken.size() + it->second.releasing.size());
}

}  // namespace capstan::scheduler
