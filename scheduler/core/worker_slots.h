// WorkerSlots: which task slots of which worker daemon are taken, and by what.
//
// A slot is free again only when the daemon says that the process is gone, so two tasks never run
// in one:
//
//   free --Take--> taken --Release--> releasing --the daemon says that it is gone--> free
//
// Processes that a daemon reports and nobody asked for (a scheduler restarted) take slots too.
// Thread safety: thread-compatible.
// Invariant: a task holds at most one slot.
#ifndef CAPSTAN_SCHEDULER_CORE_WORKER_SLOTS_H_
#define CAPSTAN_SCHEDULER_CORE_WORKER_SLOTS_H_

#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "scheduler/core/messages.h"

namespace capstan::scheduler {

class WorkerSlots {
 public:
  void AddNode(const NodeId& node, int capacity);
  void RemoveNode(const NodeId& node);  // Dead: its slots and what ran in them are gone.
  void CloseNode(const NodeId& node);   // Leaving or drained: nothing new is placed on it.
  void OpenNode(const NodeId& node);    // Takes that back.

  // The daemon with the most free slots; the first name of several. Nothing if none is free.
  std::optional<NodeId> Choose() const;
  void Take(const NodeId& node, const TaskKey& task);
  void Release(const NodeId& node, const TaskKey& task);

  // What a daemon runs. `current`: the daemon has seen its newest desired state, so what that does
  // not hold and the report does not list is gone.
  void Report(const NodeId& node, absl::Span<const TaskState> tasks, bool current);

  // What the daemon is to run, in order.
  std::vector<TaskKey> Desired(const NodeId& node) const;

  int free() const;      // On open daemons.
  int capacity() const;  // Of open daemons.
  int Taken(const NodeId& node) const;

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(nodes_);
  }

 private:
  struct Slots {
    int capacity = 0;
    bool open = true;
    absl::btree_set<TaskKey> taken;      // Desired.
    absl::btree_set<TaskKey> releasing;  // No longer desired; the process may still run.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(capacity, open, taken, releasing);
    }
    int free() const {
      const int used = static_cast<int>(taken.size() + releasing.size());
      return open && used < capacity ? capacity - used : 0;
    }
  };

  absl::btree_map<NodeId, Slots> nodes_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORKER_SLOTS_H_
