// WorkerSlots: which task slots and which GPUs of which worker daemon are taken, and by what.
//
// A slot, and the GPUs of the task in it, are free again only when the daemon says that the process
// is gone, so two tasks never run in one slot or on one GPU:
//
//   free --Take--> taken --Release--> releasing --the daemon says that it is gone--> free
//
// Processes that a daemon reports and nobody asked for (a scheduler restarted) take slots too.
// A GPU that a task reported as lost is given to nobody until its daemon registers again.
// Owned by JobPlacer. Thread safety: thread-compatible.
// Invariants: (1) a task holds at most one slot.
//             (2) a GPU is held by at most one task, which has a slot.
#ifndef CAPSTAN_SCHEDULER_CORE_NODES_WORKER_SLOTS_H_
#define CAPSTAN_SCHEDULER_CORE_NODES_WORKER_SLOTS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/devices/devices.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

class WorkerSlots {
 public:
  void AddNode(const NodeId& node, int capacity, const Devices& devices = {});
  void RemoveNode(const NodeId& node);  // Dead: its slots and what ran in them are gone.
  void CloseNode(const NodeId& node);   // Leaving or drained: nothing new is placed on it.
  void OpenNode(const NodeId& node);    // Undoes CloseNode.

  struct Place {
    NodeId node;
    std::vector<int> gpus;  // The task's, ascending; empty: it computes on the CPU.
    friend bool operator==(const Place&, const Place&) = default;
  };
  // The daemon with the most free slots that meets `need`, of several the one with the fewest free
  // GPUs, then the first name; there the lowest free GPUs. nullopt if no daemon outside `avoided`
  // meets it.
  std::optional<Place> Choose(const DeviceNeed& need = {},
                              const std::set<NodeId>& avoided = {}) const;
  void Take(const Place& place, const TaskKey& task);
  void Release(const NodeId& node, const TaskKey& task);
  // The task reported that these of its GPUs are lost. If none of them is the task's own, any of
  // its own may be lost, so all count as lost.
  void LoseGpus(const NodeId& node, const TaskKey& task, absl::Span<const int> gpus = {});

  // Accepts a daemon's report on its tasks. `current`: the daemon has seen its newest desired
  // state, so a task is gone if neither that state nor the report has it.
  void Report(const NodeId& node, absl::Span<const TaskState> tasks, bool current);

  // Returns the tasks that the daemon must run, in order.
  std::vector<TaskKey> Desired(const NodeId& node) const;
  std::vector<int> GpusOf(const NodeId& node, const TaskKey& task) const;  // Empty: it has none.

  // How many tasks with this need can be placed on open daemons: now, and if nothing ran there.
  int free(const DeviceNeed& need = {}) const;
  int capacity(const DeviceNeed& need = {}) const;
  int Taken(const NodeId& node) const;  // Slots, also of ending tasks.
  bool Runs(const JobId& job) const;    // Some task of it has a slot, or its process may still run.
  std::vector<int> GpusTaken(const NodeId& node) const;  // Ascending.
  std::vector<int> GpusLost(const NodeId& node) const;   // Ascending.
  // Names the lack of each open daemon: "worker-1: no CUDA driver; worker-2: has 1 GPU". Lists at
  // most three. REQUIRES: need.kind is kGpu, capacity(need) is 0.
  std::string WhyNoGpus(const DeviceNeed& need) const;

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(nodes_);
  }

 private:
  struct Slots {
    int capacity = 0;
    bool open = true;
    std::set<TaskKey> taken;      // Desired.
    std::set<TaskKey> releasing;  // No longer desired; the process may still run.
    std::vector<int> gpus;        // The GPUs that tasks can use, ascending.
    std::string no_gpus;          // Why tasks cannot use its GPUs. Empty: they can.
    std::set<int> lost;
    std::map<TaskKey, std::vector<int>> held;  // GPUs, of tasks in `taken` or `releasing`.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(capacity, open, taken, releasing, gpus, no_gpus, lost, held);
    }
    int free() const {
      const int used = static_cast<int>(taken.size() + releasing.size());
      return open && used < capacity ? capacity - used : 0;
    }
    std::vector<int> UsableGpus() const;  // Taken ones, too.
    std::vector<int> FreeGpus() const;
    void DropHeld();  // Forgets the GPUs of tasks that have no slot any more.
  };

  const Slots* Find(const NodeId& node) const;  // Null: not there.

  std::map<NodeId, Slots> nodes_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_NODES_WORKER_SLOTS_H_
