// DesiredStates: what each server, worker and task should do, and the syncs by which they hear it.
// Part of SchedulerCore.
//
// A node's desired state is made from the table of jobs and the task slots: a server's routing
// tables, a worker's tasks. A task's desired state is its assignment and its job's routing table,
// which JobRun has. A sync is held until its caller's desired state is not the one that it has
// seen, or the sync interval has passed.
// Thread safety: thread-compatible.
// Invariants: (1) a node's desired state has a generation that grows with every change.
//             (2) a node or task has at most one held sync; each is answered exactly once.
//             (3) it has a state for each live node: the caller reports every start and death.
#ifndef CAPSTAN_SCHEDULER_CORE_PLACEMENT_DESIRED_STATES_H_
#define CAPSTAN_SCHEDULER_CORE_PLACEMENT_DESIRED_STATES_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/nodes/membership.h"
#include "scheduler/core/nodes/worker_slots.h"
#include "scheduler/core/placement/job_table.h"
#include "scheduler/core/placement/store_revisions.h"

namespace capstan::scheduler {

class DesiredStates {
 public:
  struct Options {
    absl::Duration lease;            // The lease of a task.
    absl::Duration sync_interval;    // Longest hold of a sync.
    absl::Duration record_interval;  // SchedulerCore::Options::record_interval.
  };
  static constexpr absl::Duration kRecordIntervalPerShard = absl::Milliseconds(1);

  // The objects behind the pointers outlive this one. In `jobs` it changes the records
  // (JobEntry::record) and takes the changed assignments.
  DesiredStates(const Options& options, JobTable* jobs, const Membership* membership,
                const WorkerSlots* slots, const StoreRevisions* revisions)
      : options_(options),
        jobs_(*jobs),
        membership_(*membership),
        slots_(*slots),
        revisions_(*revisions) {}

  // ---- nodes
  // A new incarnation of the node begins with an empty desired state. REQUIRES: no earlier one
  // lives.
  void AddNode(const NodeId& node) { nodes_[node] = {.generation = Generation(1), .desired = {}}; }
  // The node's held sync is answered with kAborted.
  void RemoveNode(const NodeDied& died, std::vector<Reply>& replies);
  // Gives the node's desired state a generation above its own and `seen`. False: no such node.
  bool RaiseGeneration(const NodeId& node, Generation seen);
  // True if `seen` is the generation of the node's newest desired state.
  bool IsNewest(const NodeId& node, Generation seen) const;
  // Holds a sync of the node. REQUIRES: no sync of the node is held.
  void HoldNode(Ticket ticket, const NodeId& node, Generation seen, Instant now);
  void AnswerNode(const NodeId& node, std::vector<Reply>& replies);  // No effect if none is held.

  // ---- tasks
  // Holds a sync of the task, and answers the earlier one that is still held.
  void HoldTask(Ticket ticket, const TaskReport& report, Instant now, std::vector<Reply>& replies);
  void AnswerTask(const TaskKey& task, std::vector<Reply>& replies);  // No effect if none is held.
  // Answers the task's sync unless the task is to wait: it is idle, and there is no news for it.
  void AnswerTaskUnlessItWaits(const TaskKey& task, std::vector<Reply>& replies);

  // ---- all
  // The nodes or the running jobs, from which desired states are made, have changed.
  void NoteChanged() { changed_ = true; }
  // True if something changed since Refresh(), or a job has a new version of what it wants.
  bool IsOutdated();
  // Makes new desired states and records, if something changed. Refuses the syncs of tasks that are
  // not wanted any more. Returns whether a node's desired state changed.
  bool Refresh(Instant now, std::vector<Reply>& replies);
  // Answers the syncs whose callers have not seen their newest desired state: first those of nodes,
  // by name, then those of tasks, by job in order of submission.
  void AnswerChanged(std::vector<Reply>& replies);
  void AnswerExpired(Instant now, std::vector<Reply>& replies);  // Syncs whose time is over.
  Instant NextDeadline() const;

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(nodes_);
  }

 private:
  // The desired state of a node, as ids; the reply has the details.
  struct Desired {
    // Job, routing, membership, checkpoint, record.
    std::vector<std::tuple<JobId, Generation, Generation, CheckpointId, uint64_t>> tables;
    std::vector<TaskKey> tasks;
    friend bool operator==(const Desired&, const Desired&) = default;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(tables, tasks);
    }
  };
  struct NodeState {
    Generation generation;
    Desired desired;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(generation, desired);
    }
    bool held = false;  // A sync is held; the fields below describe it.
    Ticket ticket;
    Generation seen;
    Instant hold_until;
  };
  struct HeldTask {
    Ticket ticket;
    Generation assignment_seen;
    Generation routing_seen;
    Instant hold_until;
  };

  Desired WantedOf(const Node& node) const;
  void RefreshRecords(Instant now);
  void Answer(const NodeId& node, NodeState& state, std::vector<Reply>& replies);
  void RefuseTasks(std::vector<Reply>& replies);

  const Options options_;
  JobTable& jobs_;
  const Membership& membership_;
  const WorkerSlots& slots_;
  const StoreRevisions& revisions_;
  std::map<NodeId, NodeState> nodes_;
  std::map<TaskKey, HeldTask> held_tasks_;
  bool changed_ = false;  // Since the nodes' desired states were made.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_DESIRED_STATES_H_
