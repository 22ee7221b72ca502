// FakeCluster: a SchedulerCore among fake servers, worker daemons and tasks, in virtual time, over
// a network that may lose, repeat and delay messages. Everything follows from the seed.
//
// The fakes keep to the protocol as real processes do: servers apply memberships and routing
// tables, fill replicas, keep logs (of jobs that want one) beyond their death, and pace pushes by
// the BSP and SSP rules (so that a wrong membership shows as a job that never ends), tasks train
// their leases sample by sample, and daemons run the tasks that they are given. Invariants are
// checked at every step; the first violation is kept in `error`.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_TESTING_FAKE_CLUSTER_H_
#define CAPSTAN_SCHEDULER_CORE_TESTING_FAKE_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/store/state_codec.h"
#include "scheduler/store/testing/memory_store.h"

namespace capstan::scheduler::testing {

// Random numbers from a seed, the same on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(seed) {}
  uint32_t Below(uint32_t bound);  // Uniform in [0, bound). REQUIRES: bound > 0.
  bool Chance(double probability);

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

// Faults of one message, each with its probability.
struct Network {
  double lose_request = 0;
  double lose_reply = 0;
  double repeat = 0;  // The request arrives twice.
  double delay = 0;   // The request arrives up to a second late, after younger ones.
};

// A job of two epochs of 3,000 samples and a test set, on all servers.
JobPlan Plan(const std::string& id, int workers, ConsistencyMode mode = ConsistencyMode::kSsp);

class FakeCluster {
 public:
  struct Options {
    uint64_t seed = 1;
    SchedulerCore::Options core;
    Network network;
    int staleness_bound = 2;       // The bound of SSP jobs.
    int batches_per_step = 3;      // Most batches of a task in 10 ms.
    double checkpoint_fails = 0;   // Chance for each part, each manifest and each model.
    double snapshot_fails = 0;     // Chance that a server cannot keep one.
    uint32_t publishing_ms = 300;  // Writing a manifest takes less.
    // The loss of an evaluated sample, by epoch. Later epochs have 0.5.
    std::vector<double> losses = {};
  };
  explicit FakeCluster(const Options& options);
  ~FakeCluster();

  // ---- operators and users
  void AddServer(const std::string& name, const std::vector<PluginRule>& rules = {});
  void AddWorker(const std::string& name, int capacity);
  void SetGpus(const std::string& name, int count);  // Takes effect at the worker's next start.
  void Kill(const std::string& name);   // A daemon, and the tasks that it runs; its call is cut.
  void Leave(const std::string& name);  // A daemon is told to stop; it is gone when it may.
  void Drain(const std::string& name, bool cancel);  // No effect while the scheduler is away.
  // True if every job could continue without this server.
  bool CanLose(const std::string& name);
  void CrashTask(const JobId& job, int rank);  // Ended by signal 11. No effect if it does not run.
  void HangTask(const JobId& job, int rank);   // It stops reporting, and lives on.
  void SlowTask(const JobId& job, int rank);   // Trains a batch in 100 ms from now on.
  void LoseGpu(const JobId& job, int rank);    // It says that its GPU is lost, and exits.
  absl::Status Submit(const JobPlan& plan,
                      const std::optional<RestoreFrom>& restore = std::nullopt);
  void AskCheckpoint(const JobId& job);
  absl::StatusOr<CheckpointId> SaveAndStop(const JobId& job);  // REQUIRES: the scheduler lives.
  // Same for a snapshot; the answer is in snapshot_replies.
  void AskSnapshot(const JobId& job, uint64_t reader, absl::Duration limit = absl::ZeroDuration());
  // No server can read its shards from that checkpoint any more, and reports this reason.
  void Damage(const std::string& folder, FailureReason reason = FailureReason::kBadData);
  void Save(const JobId& job, absl::Duration limit);  // Asks for a checkpoint and waits for it.
  // The scheduler dies, at once or at the end of its next step, before any result of that step is
  // durable or sent. After `away` another one continues from the store.
  enum class Death { kBetweenSteps, kInStep };
  void KillScheduler(absl::Duration away, Death death);
  void AwaitScheduler();  // Cancels its death in a step, and runs until it lives.

  // ---- time
  void Run(absl::Duration duration);
  bool RunUntil(const std::function<bool()>& done,
                absl::Duration limit);  // True: done within limit.

  // ---- views
  SchedulerCore& core() { return *core_; }
  JobView View(const JobId& job);
  bool Ended(const JobId& job) { return View(job).ended.has_value(); }
  Instant now() const { return now_; }
  const Events& events() const { return events_; }
  Dice& dice() { return dice_; }
  void set_network(const Network& network) { network_ = network; }
  std::vector<std::pair<JobId, int>> RunningTasks() const;
  std::vector<std::string> AliveNodes(Role role) const;
  // Every position of every trained epoch was reported once, every slot did every iteration.
  void CheckTrained(const JobPlan& plan);
  void CheckAllAnswered();
  const std::string& error() const { return error_; }
  const std::vector<CheckpointReply>& checkpoint_replies() const { return checkpoint_replies_; }
  const std::vector<SnapshotReply>& snapshot_replies() const { return snapshot_replies_; }
  bool IsPublishing() const { return !publishes_.empty(); }  // A manifest is being written.
  // The complete checkpoints of a job, oldest first.
  const std::vector<CheckpointPublish>& Complete(const JobId& job) { return jobs_[job].complete; }

 private:
  struct Clock {  // One server's view of a member.
    Incarnation incarnation;
    bool active = false;
    int64_t clock = 0;
  };
  struct FakeTables {
    std::shared_ptr<const Routing> routing;  // Immutable; the core's.
    JobMembership membership;
    std::map<Rank, Clock> clocks;
    std::optional<CheckpointReport> checkpoint;  // From its capture on.
    Failure failure;
    CheckpointOrder order;
    Instant capture_at;
    Instant written_at;
  };
  struct FakeTask {
    TaskKey key;
    NodeId node;
    bool exited = false;
    TaskExit exit;
    bool hung = false;
    bool slow = false;
    bool gpu_lost = false;
    std::vector<int> gpus;
    bool refused = false;
    std::optional<Instant> dying_until;  // The daemon ends it; it still takes its slot.
    Assignment assignment;
    Generation routing_seen;
    int64_t iterations = 0;
    TaskTotals totals;
    std::map<LeaseId, SampleReport> samples;  // The assignment's leases.
    std::map<SlotId, Iteration> slots;        // Next iteration of each slot held.
    bool exported = false;
    bool finished = false;
    std::optional<Ticket> waiting;
    Instant give_up;
    Instant ready;  // Trains from then on.
  };
  struct FakeNode {
    NodeId name;
    Role role = Role::kServer;
    int capacity = 0;
    std::vector<PluginRule> rules = {};
    bool alive = true;
    bool registered = false;
    bool leaving = false;
    Incarnation incarnation;
    Generation seen;
    std::map<JobId, FakeTables> tables;
    std::map<TaskKey, FakeTask> tasks;
    std::optional<Ticket> waiting;
    Instant give_up;
  };
  struct Request {
    Instant arrives;
    Ticket ticket;
    std::optional<NodeReport> node;
    std::optional<TaskReport> task;
  };
  struct Trained {  // The reports on one lease.
    Range positions;
    int64_t done = 0;
    int64_t durable = 0;  // The part of `done` that survives the scheduler's death.
    int epoch = 0;
  };
  struct JobLedger {
    JobPlan plan;
    std::map<LeaseId, Trained> leases;            // Training leases.
    int64_t version = 0;                          // BSP: iterations complete.
    std::map<int64_t, std::set<int>> slots_done;  // Keyed by iteration; only incomplete ones.
    uint64_t revision = 0;
    int64_t pushes = 0;
    // The members' finished iterations, which every copy of a shard holds.
    std::map<std::pair<Rank, Incarnation>, int64_t> clocks;
    std::map<CheckpointId, std::set<int64_t>> pushes_captured;
    std::vector<CheckpointPublish> complete;
    std::set<CheckpointId> gone;  // The removed ones of `complete`.
    std::optional<RestoreFrom> begins_at;
    Term restored_term;   // From the checkpoint; 0: the job's beginning.
    ResumePoint resumed;  // Where training began last.
  };
  struct Publish {
    CheckpointPublish what;
    Instant done;
  };
  struct Move {
    ModelPublish what;
    Instant done;
  };

  // A call without an answer for this long is sent again.
  static constexpr absl::Duration kGiveUp = absl::Seconds(1);

  void Step();
  void SyncServerOrDaemon(FakeNode& node);
  void SyncTask(FakeTask& task);
  void Evaluate(FakeTask& task) const;
  void Work(FakeTask& task);
  bool TrainSample(FakeTask& task);
  bool TrainSlots(FakeTask& task);
  bool IsPrimary(const FakeNode& node, const JobId& job) const;  // This incarnation of it.
  static std::vector<ReplicaReport> FilledReplicas(const FakeNode& node, const FakeTables& tables);
  // The server has applied the table that made it primary in `term`.
  bool HasMade(const ServerRef& server, const JobId& job, Term term) const;
  bool ServersReady(const JobId& job) const;  // Every shard has a primary that knows that it is.
  bool MayPull(const FakeTask& task) const;
  void Pushed(const FakeTask& task);
  bool AllDone(const FakeTask& task) const;
  void Send(Request request);
  void Deliver();
  void DeliverOne(const Request& request);
  bool Perform(Actions& actions);  // False: the scheduler died instead.
  Actions Restore();
  bool SchedulerAway();
  Moment Now() const;
  void TakeCheckpoints(FakeNode& node);
  std::vector<CheckpointPart> PartsOf(const FakeNode& node, const FakeTables& tables);
  void NoteRestore(const TableAssignment& assignment);
  void PublishDue();
  void MoveDue();
  void KeepStaying(const JobId& job);
  void NoteCheckpoint(const CheckpointEnded& ended);
  void NoteSnapshot(const SnapshotTaken& taken);
  void TakeReply(const NodeReply& reply);
  void TakeReply(const TaskReply& reply);
  void ApplyTables(FakeNode& node, const NodeReply& reply);
  void ApplyTasks(FakeNode& node, const NodeReply& reply);
  void ApplyGpus(FakeNode& node, const NodeReply& reply);
  void TakeAssignment(FakeTask& task, const Assignment& assignment);
  void NoteLeases(const TaskReply& reply);
  void NoteReported(const TaskReport& report);
  void NoteLeft(const JobLeft& left);
  void NoteEvents(const Events& events);
  void Answered(Ticket ticket);
  FakeTask* FindTask(const TaskKey& key);
  FakeTask* FindRank(const JobId& job, int rank);
  void Fail(const std::string& what);

  const Options options_;
  Network network_;
  Dice dice_;
  MemoryStore store_;
  std::unique_ptr<SchedulerCore> core_;
  std::optional<Instant> away_until_;  // The scheduler is dead.
  std::optional<absl::Duration> dies_in_step_;
  Instant now_;
  std::map<NodeId, FakeNode> nodes_;
  std::map<NodeId, std::vector<StoredShard>> disks_;  // Logs of dead servers.
  std::map<NodeId, Devices> devices_;
  std::vector<Request> flying_;
  uint64_t next_ticket_ = 1;
  std::set<Ticket> owed_;                // Accepted, not answered.
  std::map<Ticket, NodeId> node_calls_;  // The node that each reply is for.
  std::map<Ticket, TaskKey> task_calls_;
  std::map<JobId, JobLedger> jobs_;
  std::map<std::pair<JobId, Rank>, TaskKey> newest_;
  std::set<TaskKey> dead_;
  std::map<std::pair<NodeId, Incarnation>, Generation> node_generations_;
  std::map<TaskKey, Generation> task_generations_;
  std::map<std::pair<JobId, NodeId>, Generation> membership_generations_;
  std::map<std::string, FailureReason> damaged_;  // Checkpoints, by folder.
  std::vector<Publish> publishes_;
  std::vector<Move> moves_;
  std::vector<SnapshotReply> snapshot_replies_;
  std::vector<CheckpointReply> checkpoint_replies_;  // To calls of Save.
  Events events_;
  std::string error_;
};

}  // namespace capstan::scheduler::testing

#endif  // CAPSTAN_SCHEDULER_CORE_TESTING_FAKE_CLUSTER_H_
