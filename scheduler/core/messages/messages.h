// Messages: the inputs and outputs of the scheduler's core, as plain structs. They mirror
// proto/scheduler.proto, which defines their meaning; scheduler/{node,task,shared,status}_codec.h
// convert. Structs that are part of a durable state have a `serialize` member, in the form of
// scheduler/store/archive.h.
// Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CORE_MESSAGES_MESSAGES_H_
#define CAPSTAN_SCHEDULER_CORE_MESSAGES_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/devices/devices.h"
#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/types/ids.h"
#include "common/types/store_revision.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/messages/plugin_rules.h"

namespace capstan::scheduler {

// Names a call whose answer the shell owes; chosen by the shell, unique among the calls not yet
// answered.
using Ticket = StrongInt<struct TicketTag, uint64_t>;

// ---- shared

enum class FailureReason {
  kNone,
  kUserError,
  kBadData,
  kDiverged,
  kOutOfMemory,
  kNoHeartbeat,
  kTaskCrashed,
  kServerLost,
  kHang,
  kInternal,
  kDeviceLost,    // Ends the task, not the job.
  kOutputFailed,  // Ends the task, not the job, which keeps its model for some time.
};
constexpr FailureReason LastOf(FailureReason) { return FailureReason::kOutputFailed; }

struct Failure {
  FailureReason reason = FailureReason::kNone;
  std::string message;
  bool happened() const { return reason != FailureReason::kNone; }
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(reason, message);
  }
  friend bool operator==(const Failure&, const Failure&) = default;
};

// One incarnation of one task.
struct TaskKey {
  JobId job;
  Rank rank;
  Incarnation incarnation;
  friend auto operator<=>(const TaskKey&, const TaskKey&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(job, rank, incarnation);
  }
};

struct SlotLease {
  SlotId slot;
  Iteration begin;
  Iteration end;
  friend bool operator==(const SlotLease&, const SlotLease&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(slot, begin, end);
  }
};

struct SampleLease {
  LeaseId id;
  Range positions;
  friend bool operator==(const SampleLease&, const SampleLease&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(id, positions);
  }
};

struct Member {
  Rank rank;
  Incarnation incarnation;
  bool active = false;
  Iteration start_iteration;
  friend bool operator==(const Member&, const Member&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(rank, incarnation, active, start_iteration);
  }
};

// A scheduler that adopts a job of another cluster begins this many generations above the job's
// record: more than can have been made since then.
inline constexpr uint64_t kGenerationsPerAdoption = uint64_t{1} << 32;

// The workers that a job's consistency rule counts; ordered by rank.
struct JobMembership {
  Generation generation;
  std::vector<Member> members;
  Incarnation incarnation_floor = {};  // Incarnations below it are fenced off, whatever their rank.
  double learning_rate_factor = 1;     // The factor of all updates that follow.
  // How long the job has trained, in whole ticks (TrainingTime). 0: no row has a time to live.
  int64_t clock_seconds = 0;
  friend bool operator==(const JobMembership&, const JobMembership&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(generation, members, incarnation_floor, learning_rate_factor);
    archive.Appended(clock_seconds);
  }
};

// ---- daemons

enum class Role { kServer, kWorker };
constexpr Role LastOf(Role) { return Role::kWorker; }

// A shard in a server's logs.
struct StoredShard {
  JobId job;
  ShardKey shard;
  Term term;
  Position position;           // The position of the last whole record.
  std::string unique_id = {};  // JobPlan::unique_id of the job that wrote it.
  // The incarnation of the server that last had the whole shard on this disk. It reveals an older
  // disk under the same name.
  Incarnation incarnation = {};
  StoreRevision seen = {};  // The newest that the last record's writer had heard of.
  friend bool operator==(const StoredShard&, const StoredShard&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(job, shard, term, position, unique_id, incarnation, seen);
  }
};

struct NodeInfo {
  std::string name;  // Wished id; empty: named by the scheduler.
  Role role = Role::kServer;
  std::string address;
  int task_capacity = 0;  // Workers: >= 1.
  std::string hostname = {};
  int64_t pid = 0;
  std::string version = {};
  std::vector<StoredShard> stored = {};  // Servers, when they register.
  Devices devices = {};                  // Workers.
  // Belongs to one process at a time, and to the next only once that one is gone. Empty: unknown.
  std::string identity = {};
  std::vector<PluginRule> plugin_rules = {};  // Servers.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(name, role, address, task_capacity, hostname, pid, version, stored, devices, identity);
    archive.Appended(plugin_rules);
  }
};

struct Registration {
  NodeId node;
  Incarnation incarnation;
  absl::Duration lease;
  absl::Duration sync_interval;
  absl::Duration read_lease;  // Silence after which another may become primary of its shards.
  std::vector<std::string> living_logs = {};  // Unique ids of the jobs with a log, for a server.
};

// A primary's report on one replica.
struct ReplicaReport {
  enum class State { kFilled, kUnreachable };
  ShardKey shard;
  Term term;    // The primary's term.
  NodeId node;  // The replica's server.
  Incarnation incarnation;
  State state = State::kFilled;
  friend bool operator==(const ReplicaReport&, const ReplicaReport&) = default;
};

// A shard's file of a checkpoint.
struct CheckpointPart {
  static constexpr int64_t kBytesMax = int64_t{1} << 44;  // So that a sum of parts cannot overflow.
  ShardKey shard;
  Range elements;
  Version version;
  std::string file;  // Relative to the checkpoint's folder.
  int64_t bytes = 0;
  uint32_t crc32c = 0;     // The checksum of the whole file.
  CheckpointId base = {};  // The file has the changes since this one; 0: it has all.
  friend bool operator==(const CheckpointPart&, const CheckpointPart&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(shard, elements, version, file, bytes, crc32c, base);
    CheckLoaded(archive, [this] { return CheckCount("bytes of a part", bytes, kBytesMax); });
  }
};

// A server's report on its part of a checkpoint.
struct CheckpointReport {
  enum class State { kCaptured, kWritten, kFailed };
  CheckpointId id;
  State state = State::kCaptured;
  std::vector<CheckpointPart> parts;  // kWritten: of each shard whose primary it is.
  std::string error;                  // kFailed.
  std::string not_kept = {};          // Why readers cannot read it there. Empty: they can.
};

// How far a server is with the shards of a job that it makes or restores.
struct Making {
  int made = 0;
  int total = 0;          // 0: it has not begun with them.
  uint64_t progress = 0;  // Grows with each shard made, of any job, in one incarnation.
  friend bool operator==(const Making&, const Making&) = default;
};

struct TableReport {
  JobId job;
  Generation routing;     // Applied.
  Generation membership;  // Applied.
  Failure failure;
  std::vector<ReplicaReport> replicas =
      {};  // Reports on the replicas of shards whose primary is here.
  std::vector<CheckpointReport> checkpoints = {};
  std::optional<Making> making = {};
  // This incarnation has durably begun the logs of all shards whose primary it is.
  bool logs_begun = false;
  // The highest version of these shards; nullopt if none of them was read from a log.
  std::optional<Version> version_max = {};
};

struct TaskExit {
  int exit_code = 0;
  int signal = 0;
  std::string last_lines;
};

struct TaskState {
  TaskKey task;
  bool exited = false;
  TaskExit exit;
};

struct NodeReport {
  NodeId node;
  Incarnation incarnation;
  Generation generation_seen;
  std::vector<TableReport> tables;
  std::vector<TaskState> tasks;
  bool leaving = false;
  StoreRevision revision_seen = {};
};

// The source from which a primary reads a shard that it does not hold yet. It depends on the
// shard's term; a shard of term 1 begins with its initial values.
struct RestoreSource {
  Term restore_term;           // From the checkpoint in `restore_folder`. 0: no such term.
  std::string restore_folder;  // The folder of one complete checkpoint. Empty: the initial values.
  Term log_term;               // From the server's own log. 0: no such term.
  friend bool operator==(const RestoreSource&, const RestoreSource&) = default;
};

// The order to every server to capture the shards whose primary it is, and to write them, to keep
// them for readers, or both. The job is quiet.
struct CheckpointOrder {
  CheckpointId id;         // 0: none is wanted.
  std::string folder;      // The folder of this checkpoint. Empty: it is not written.
  CheckpointId base = {};  // Changes since this checkpoint are enough. 0: write everything.
  std::vector<uint64_t> readers = {};   // Readers of a snapshot. Empty: no snapshot is kept.
  std::optional<Version> version = {};  // BSP: the version of every shard at this moment.
  friend bool operator==(const CheckpointOrder&, const CheckpointOrder&) = default;
};

// A job's tables on one server.
struct TableAssignment {
  std::shared_ptr<const Routing> routing;  // Shared by all replies of the job; immutable.
  JobMembership membership;
  RestoreSource restore = {};
  CheckpointOrder checkpoint = {};
  // Grows with each record of the job that its servers are to keep (scheduler/store/job_record.h).
  // 0: they keep none.
  uint64_t record = 0;
};

// The GPUs of a task's worker that are the task's own.
struct TaskGpus {
  TaskKey task;
  std::vector<int> gpus;
};

struct NodeReply {
  Ticket ticket;
  absl::Status status;  // If not ok, the rest is empty.
  Generation generation;
  bool changed = false;  // False: nothing newer than the node has; the lists are empty.
  std::vector<TableAssignment> tables;
  std::vector<TaskKey> tasks;
  std::vector<TaskGpus> gpus;  // The GPUs of tasks that have some, in the order of `tasks`.
  bool may_stop = false;       // See MayStop in placement/drain_state.h.
  StoreRevision revision = {};
};

// ---- tasks

struct SlotReport {
  SlotId slot;
  Iteration done;
};

struct SampleReport {
  LeaseId lease;
  int64_t position_done = 0;
  double loss_sum = 0;
  int64_t correct = 0;
  ScoreCounts scores = {};
  OutputSums outputs = {};
};

inline constexpr int kStalenessBuckets = 64;

// Checks totals that were read, or that a task reports. Errors: kDataLoss  names the field.
inline absl::Status CheckTotals(int64_t samples, int64_t correct,
                                const std::vector<int64_t>& staleness_counts, int64_t rows_cached,
                                int64_t rows_pulled) {
  absl::Status status = CheckCount("samples_total", samples);
  status.Update(CheckCount("correct_total", correct));
  status.Update(CheckCount("rows_cached", rows_cached));
  status.Update(CheckCount("rows_pulled", rows_pulled));
  status.Update(CheckCount("staleness_counts: entries",
                           static_cast<int64_t>(staleness_counts.size()), kStalenessBuckets));
  for (const int64_t count : staleness_counts) {
    status.Update(CheckCount("staleness_counts", count));
  }
  return status;
}

// Totals since the task process started.
struct TaskTotals {
  int64_t samples = 0;
  double loss = 0;
  int64_t correct = 0;
  std::vector<int64_t> staleness_counts;  // At most kStalenessBuckets.
  int64_t rows_cached = 0;                // Rows of batches that were in a cache.
  int64_t rows_pulled = 0;                // Rows of batches that were not.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(samples, loss, correct, staleness_counts, rows_cached, rows_pulled);
    CheckLoaded(archive, [this] {
      return CheckTotals(samples, correct, staleness_counts, rows_cached, rows_pulled);
    });
  }
};

struct WaitingOn {
  int table = 0;
  int shard = 0;
  Iteration iteration;
  std::vector<Rank> ranks;
  std::vector<SlotId> slots;
};

struct Wait {
  std::string what;  // Empty: not waiting.
  Iteration iteration;
  absl::Duration waited;
  std::string peer;
  std::vector<WaitingOn> waiting_on;
  std::vector<NodeId> silent = {};  // Servers that it cannot reach.
};

// The work of a task beside its batches: it prepares, or exports.
struct Activity {
  std::string what;  // The counted objects ("examples read"). Empty: no such work.
  int64_t done = 0;  // The number of objects that are done.
};

// Hashes of what a task read and computed for a table in a micro-batch. See proto/scheduler.proto.
struct TableHashes {
  int32_t table = 0;
  uint64_t parameters = 0;
  uint64_t gradient = 0;
  uint64_t keys = 0;
};

struct UpdateHashes {
  Iteration iteration;
  Epoch epoch;
  SlotId slot;
  Range positions;
  std::vector<TableHashes> tables = {};
};

struct TaskReport {
  TaskKey task;
  Generation assignment_seen;
  Generation routing_seen;
  Iteration iterations;
  std::vector<SlotReport> slots;
  std::vector<SampleReport> samples;
  TaskTotals totals;
  bool exported = false;
  bool idle = false;
  bool preparing = false;  // It accepts no work yet.
  Wait wait;
  Activity activity = {};
  Failure failure;
  // If the reason is kDeviceLost: which GPUs of the task. None: any of them may be lost.
  std::vector<int> gpus_lost = {};
  StoreRevision revision_seen = {};
  std::vector<UpdateHashes> updates = {};
};

enum class TaskPhase { kIdle, kTrain, kEvaluate, kExport, kFinish };
constexpr TaskPhase LastOf(TaskPhase) { return TaskPhase::kFinish; }

struct Assignment {
  Generation generation;
  TaskPhase phase = TaskPhase::kIdle;
  Epoch epoch;
  std::vector<SlotLease> slots;
  std::vector<SampleLease> samples;
  Iteration start_iteration;
  Iteration epoch_first_iteration;
  std::string export_path;
  bool paused = false;
  std::string staged_path = {};
  friend bool operator==(const Assignment&, const Assignment&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(generation, phase, epoch, slots, samples, start_iteration, epoch_first_iteration,
            export_path, paused, staged_path);
  }
};

struct TaskReply {
  Ticket ticket;
  absl::Status status;  // If not ok, the rest is empty.
  JobId job;
  bool has_assignment = false;  // False: none newer than the task's.
  Assignment assignment;
  std::shared_ptr<const Routing>
      routing;                 // Null: none newer. Shared by all replies of the job; immutable.
  bool first_routing = false;  // The task has none yet: it also needs the table specs.
  absl::Duration lease;
  absl::Duration sync_interval;
  StoreRevision revision = {};
};

// The complete model that `exporter` has staged. The shell moves it to its place, and reports the
// result by SchedulerCore::ModelPublished. It may come again after a restart.
struct ModelPublish {
  TaskKey exporter;
  std::string staged;  // The folder of the staged model.
  std::string folder;  // The folder to which it is moved.
};

// ---- users

struct JobReply {
  Ticket ticket;
  JobId job;
};

// The outcome of a requested checkpoint.
struct CheckpointReply {
  Ticket ticket;
  absl::Status status;  // If not ok, why there is none.
  CheckpointId id;      // 0: not complete within the limit; it goes on.
  std::string folder;
  CheckpointId asked;  // The one that was waited for.
};

// The outcome of a requested snapshot.
struct SnapshotReply {
  Ticket ticket;
  absl::Status status;  // If not ok, why there is none.
  JobId job;
  CheckpointId id;                              // 0: not taken within the limit.
  int64_t iteration = 0;                        // Same as in JobView.
  std::shared_ptr<const Routing> routing = {};  // Its primaries have the snapshot. Null: id is 0.
};

// How far a node is drained.
struct DrainReply {
  Ticket ticket;
  bool safe_to_stop = false;
  int shards = 0;
  int tasks = 0;
  std::string detail;  // One sentence: what it waits for. Empty if it is safe.
};

// The answer to a call that the core has accepted.
using Reply =
    std::variant<NodeReply, TaskReply, JobReply, CheckpointReply, SnapshotReply, DrainReply>;

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_MESSAGES_MESSAGES_H_
