// ServerAgent: makes, promotes, fills and drops shards as the scheduler wishes; the server's half
// of a NodeAgent.
//
// Shards are made by a thread of its own (or the given executor), as initial values and restores
// take a while and the lease must be kept; reports say how far it is. Another thread captures what
// checkpoints and snapshots want, so that no job waits with that for the shards of another. A
// routing table is applied once its shards are made.
//
//              TakeDesired (new)        made                     TakeDesired (generations)
//   (unknown) ------------------> MAKING ----> HELD, reported --+------> HELD, or MAKING MORE
//                                    |                          '------> FAILED: unknown shards
//                                    '--cannot be made--> FAILED, reported --new sources--> MAKING
//   any --TakeDesired without the job, or a new incarnation--> dropped; its waiting calls end
//
//   checkpoint: TakeDesired(order) --> captured, reported --> written, reported
//                                  |                     '--> failed, reported
//                                  '--without a folder--> kept for readers, reported as captured
//
// Thread safety: thread-safe, except that Start and Stop are one thread's.
#ifndef CAPSTAN_SERVER_AGENT_SERVER_AGENT_H_
#define CAPSTAN_SERVER_AGENT_SERVER_AGENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/node/node_registration.h"
#include "common/time/clock.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "server/agent/log_recovery.h"
#include "server/agent/table_source.h"
#include "server/device/shard_device.h"
#include "server/engine/job/held_jobs.h"
#include "server/engine/record_sink.h"
#include "server/engine/replica_transport.h"
#include "server/optimizer/plugin/plugin_rules.h"
#include "server/store/memory_budget.h"
#include "server/store/row_disk.h"

namespace capstan::server {

class ServerAgent final : public NodeHandler {
 public:
  // All that is pointed to outlives the agent and the jobs it makes.
  struct Options {
    HeldJobs* jobs = nullptr;  // The agent alone adds to it.
    const Clock* clock = nullptr;
    ReplicaTransport* transport = nullptr;
    std::shared_ptr<MemoryBudget> budget;  // Shared with every shard. Null: no limit.
    RowDisks* row_disks = nullptr;         // Null: no table may limit its memory.
    ShardDevice* device = nullptr;         // Null: dense shards are the host's.
    const PluginRules* plugins = nullptr;  // Update rules of the operator. Null: none.
    RecordSink* log = nullptr;             // Null: jobs that ask for a log are refused.
    std::function<std::vector<v1::StoredShard>()> stored;  // The log's content. Null: nothing.
    std::function<std::vector<v1::KeptLog>()> logs;        // All logs here. Null: none.
    // Decides on logs that no living job needs. Null: they stay.
    UnclaimedLogs* unclaimed = nullptr;
    TableSource* source = nullptr;          // Null: nothing can be restored.
    CheckpointSink* checkpoints = nullptr;  // Null: checkpoints fail.
    SnapshotLeases::Limits snapshots;       // Limits for each job.
    // The state to report has changed (NodeAgent::Wake). Called from any thread, under no lock.
    std::function<void()> on_change;
    std::function<void(Instant)> schedule_tick;  // See HeldJob::Options.
    // Runs long work: later, or before it returns; both are allowed. Shards are made one at a time,
    // in order. Null: two threads of the agent's own.
    std::function<void(std::function<void()>)> execute;
  };

  explicit ServerAgent(Options options);
  ~ServerAgent() override;  // Stops.

  void Start();
  void Stop();  // Waits for the shard in the making; makes no others. Idempotent.

  // Whether a log here has failed, and what a new incarnation would cost (LogRecovery::Need): every
  // job gets back what has a log or a replica elsewhere, nothing else. `log_waits`: a log could not
  // be opened for want of space, and only a new incarnation can register it.
  LogRecovery::Need NeedOfNewIncarnation(bool log_waits) const ABSL_LOCKS_EXCLUDED(mutex_);

  void FillRegistration(v1::RegisterRequest& request) override;
  void Registered(const v1::RegisterResponse& response) override;
  void Restarted(const NodeId& node_id, Incarnation incarnation) override;
  void FillState(v1::SyncNodeRequest& request) override;
  void SyncAnswered(absl::Duration read_lease, const v1::StoreRevision& revision) override;
  void TakeDesired(const v1::SyncNodeResponse& response) override;

 private:
  enum class Stage { kMaking, kHeld, kFailed };
  struct Entry {
    uint64_t id = 0;  // Tells apart two entries of one job: it was dropped and assigned again.
    v1::TableAssignment desired;
    Stage stage = Stage::kMaking;
    bool making = false;             // An order to make shards is under way, or waits.
    int made = 0;                    // Shards made so far.
    int to_make = 0;                 // Shards to make in all; 0: it has not begun.
    absl::Status failure;            // kFailed.
    std::shared_ptr<HeldJob> job;    // Shared with `jobs_`; null until its first shards are made.
    v1::CheckpointState checkpoint;  // State of the last accepted order. Id 0: none.
  };
  struct Order {
    enum class Kind { kMake, kCapture };
    Kind kind = Kind::kMake;
    JobId job;
    uint64_t id = 0;          // The entry's.
    uint64_t checkpoint = 0;  // kCapture: its id. Skipped if another one was ordered since.
  };
  // The consequences of a desired state, carried out without the mutex.
  struct Work {
    std::vector<JobId> drop;
    std::vector<Order> orders;
    std::vector<std::pair<std::shared_ptr<HeldJob>, v1::TableAssignment>> apply;
  };
  // Shows late callbacks that the agent is gone.
  struct Handle {
    absl::Mutex mutex;
    ServerAgent* agent ABSL_GUARDED_BY(mutex) = nullptr;
  };

  void DropIncarnation() ABSL_LOCKS_EXCLUDED(mutex_);  // Drops all that this incarnation holds.
  void KeepRecord(const Entry& entry, const v1::TableAssignment& desired)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Decides what an entry needs next: shards, a routing table, a capture.
  void Progress(Entry& entry, Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(Work work);
  void Run(const Order& order);
  std::deque<Order>& OrdersOf(Order::Kind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return kind == Order::Kind::kMake ? makes_ : captures_;
  }
  void RunAll(Order::Kind kind);  // Runs on a thread until Stop.
  void Make(const Order& order);
  void Capture(const Order& order);
  void CheckpointWritten(const Order& order, uint64_t checkpoint,
                         const absl::StatusOr<std::vector<v1::CheckpointPart>>& parts);
  // Whether `a` and `b` name different checkpoints or logs: shards that could not be made from one
  // may be made from another.
  static bool HaveOtherSources(const v1::TableAssignment& a, const v1::TableAssignment& b);
  static ShardSources SourcesOf(const v1::TableAssignment& desired);
  absl::StatusOr<std::shared_ptr<HeldJob>> MakeJob(const v1::TableAssignment& desired);
  bool Hold(const Order& order, const std::shared_ptr<HeldJob>& job);
  absl::StatusOr<std::vector<MadeShard>> MakeShards(const Order& order,
                                                    const v1::TableAssignment& desired,
                                                    const HeldJob& job);
  // Errors: kCancelled  the job is gone or has other sources now, or this agent stops.
  absl::Status NoteMade(const Order& order, const v1::TableAssignment& desired, size_t made,
                        size_t to_make) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<TableShard> MakeShard(const v1::TableAssignment& desired, const HeldJob& job,
                                       const ShardOrder& order);
  static void FillHeld(const Entry& entry, v1::TableState* state);
  void Fail(Entry& entry, const absl::Status& status, Work* work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Abandon(const JobId& id, const HeldJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: the entry is gone.
  Entry* FindEntry(const Order& order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::shared_ptr<Handle> handle_;  // Shared with callbacks of the checkpoint sink.

  // The node agent's thread only.
  Instant state_filled_;            // When the last request was filled in.
  bool collect_unclaimed_ = false;  // A sync was answered since the last CollectDue.
  // Unique ids of jobs whose logs were removed since the registration, the last kLogsToldMax.
  std::deque<std::string> removed_logs_;

  mutable absl::Mutex mutex_;
  absl::CondVar ordered_;
  NodeId node_id_ ABSL_GUARDED_BY(mutex_);
  Incarnation incarnation_ ABSL_GUARDED_BY(mutex_);
  std::map<JobId, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<Order> makes_ ABSL_GUARDED_BY(mutex_);     // At most one an entry.
  std::deque<Order> captures_ ABSL_GUARDED_BY(mutex_);  // Only an entry's last order has an effect.
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t making_progress_ ABSL_GUARDED_BY(mutex_) = 0;  // See Making.progress.
  Instant read_lease_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread maker_, capturer_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_AGENT_SERVER_AGENT_H_
