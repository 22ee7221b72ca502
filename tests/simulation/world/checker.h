// Checker: watches a simulated world and says what it saw broken. One promise, one file.
//
// The shells (sim_scheduler, sim_server, sim_task) tell every checker what happens; a checker
// implements what it cares about. It trusts what it is told of clients and of the scheduler's
// answers, never the servers' own claims about the numbers that it checks.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_CHECKER_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_CHECKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::sim {

using scheduler::TaskKey;

// For messages; a reader of the job has a negative rank.
inline std::string NameOf(const TaskKey& task_key) {
  if (task_key.rank.value() < 0) return "the reader";
  return absl::StrCat("task ", task_key.rank.value(), "/", task_key.incarnation.value());
}

// A worker's batch, as its trainer knows it.
struct Batch {
  Epoch epoch;
  Iteration iteration;
  Range slots;      // BSP.
  Range positions;  // Positions in the epoch's order.
};

// A shard's part of a push, as the client numbers it.
struct ShardPush {
  TaskKey task_key;
  ShardKey shard;
  Sequence sequence;
  Batch batch;
  absl::Span<const float> values;  // Valid during the call.
};

// A shard's part of a pull's answer, as the client takes it in.
struct ShardRead {
  TaskKey task_key;
  ShardKey shard;
  Iteration iteration;
  bool snapshot = false;
  Version version;
};

// A bucket's rows as a task that keeps rows uses them, once the pull for it has ended well.
struct RowsUse {
  TaskKey task_key;
  ShardKey shard;
  Iteration iteration;
  Range places;                      // Places of its keys among those of the table.
  absl::Span<const uint32_t> asked;  // The places that the pull has asked for.
  absl::Span<const float> rows;      // Rows of all places of the table. Valid during the call.
};

class Checker {
 public:
  virtual ~Checker() = default;

  // ---- tasks
  virtual void PushSent(const ShardPush& push) { static_cast<void>(push); }
  virtual void PushAcknowledged(const TaskKey& task_key, ShardKey shard, const Batch& batch,
                                Version version) {
    static_cast<void>(task_key), static_cast<void>(shard), static_cast<void>(batch),
        static_cast<void>(version);
  }
  virtual void PullSent(const TaskKey& task_key, ShardKey shard, Iteration iteration) {
    static_cast<void>(task_key), static_cast<void>(shard), static_cast<void>(iteration);
  }
  virtual void ReadDone(const ShardRead& read) { static_cast<void>(read); }
  // A reader of a snapshot was shown the shard at that version.
  virtual void SnapshotShown(ShardKey shard, Version version) {
    static_cast<void>(shard), static_cast<void>(version);
  }
  virtual void RowsUsed(const RowsUse& use) { static_cast<void>(use); }
  // A task begins to compute the batch; the parameters are valid during the call.
  virtual void ComputationBegun(const TaskKey& task_key, const Batch& batch,
                                const std::vector<std::vector<float>>& parameters) {
    static_cast<void>(task_key), static_cast<void>(batch), static_cast<void>(parameters);
  }
  // Every shard has acknowledged the batch's push.
  virtual void BatchDone(const TaskKey& task_key, const Batch& batch) {
    static_cast<void>(task_key), static_cast<void>(batch);
  }
  // The task's work has changed: it is to start at `start` or later, and `leases` of its sample
  // leases are not finished.
  virtual void WorkChanged(const TaskKey& task_key, Iteration start, int leases) {
    static_cast<void>(task_key), static_cast<void>(start), static_cast<void>(leases);
  }
  virtual void Exported(const TaskKey& task_key, const std::vector<std::vector<float>>& tables,
                        const std::map<TableId, Version>& versions) {
    static_cast<void>(task_key), static_cast<void>(tables), static_cast<void>(versions);
  }

  // ---- the scheduler
  virtual void Happened(const scheduler::Event& event) { static_cast<void>(event); }
  virtual void Assigned(const TaskKey& task_key, const scheduler::Assignment& assignment) {
    static_cast<void>(task_key), static_cast<void>(assignment);
  }
  virtual void ReportTaken(const scheduler::TaskReport& report) { static_cast<void>(report); }
  virtual void RoutingSent(const scheduler::Routing& routing) { static_cast<void>(routing); }
  // It is durable, and the scheduler ended before anybody was sent it.
  virtual void RoutingWritten(const scheduler::Routing& routing) { static_cast<void>(routing); }
  virtual void MembershipSent(const JobId& job, const scheduler::JobMembership& membership) {
    static_cast<void>(job), static_cast<void>(membership);
  }
  virtual void SchedulerRestarted() {}
  virtual void StoreCopied() {}   // The scheduler's store was copied.
  virtual void StorePutBack() {}  // The next scheduler goes on from the copy.
  // A fault has cut it off from everybody, or this is over.
  virtual void SchedulerCutOff(bool cut) { static_cast<void>(cut); }
  virtual void ModelIsWhole() {}  // A task has written it; it is moved to its place.

  // ---- servers: an answer leaves
  virtual void PullAnswered(const std::string& server, const v1::PullRequest& request,
                            const v1::PullResponse& response) {
    static_cast<void>(server), static_cast<void>(request), static_cast<void>(response);
  }
  virtual void PushAnswered(const std::string& server, const v1::PushRequest& request,
                            const v1::PushResponse& response) {
    static_cast<void>(server), static_cast<void>(request), static_cast<void>(response);
  }

  // The run is over; `succeeded`: the job has.
  virtual void AtEnd(bool succeeded) { static_cast<void>(succeeded); }

  const std::string& failure() const { return failure_; }  // Empty: nothing is broken.

 protected:
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

 private:
  std::string failure_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_CHECKER_H_
