// Events: what happened in the core, for logs, metrics files and tests. The core itself logs
// nothing.
// Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CORE_MESSAGES_EVENTS_H_
#define CAPSTAN_SCHEDULER_CORE_MESSAGES_EVENTS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

enum class JobState { kPending, kRunning, kSucceeded, kStopped, kFailed };
constexpr JobState LastOf(JobState) { return JobState::kFailed; }

// The phase of a running job.
enum class JobPhase {
  kPlacing,   // Its servers make the tables.
  kStarting,  // Its tasks start.
  kTraining,
  kCheckpointing,  // It is quiet while its servers copy the tables.
  kEvaluating,
  kExporting,
  kFinishing,   // The model is written; its tasks exit.
  kRecovering,  // It has lost shards and waits for servers to restore them on.
};
constexpr JobPhase LastOf(JobPhase) { return JobPhase::kRecovering; }

// Counts derived from it do not overflow.
inline constexpr int64_t kEpochMax = std::numeric_limits<int32_t>::max() - 1;

struct EpochResult {
  Epoch epoch;
  double train_loss = 0;      // Mean over the samples trained in this epoch.
  double train_accuracy = 0;  // Share; 0 for objectives that have none, as below.
  double test_loss = 0;
  double test_accuracy = 0;
  int64_t test_samples = 0;  // 0: no test set.
  absl::Duration duration;   // Training and evaluation.
  // Same as in EvaluationFigures.
  std::optional<double> test_auc = {};
  std::optional<double> test_rmse = {};
  std::optional<double> test_mae = {};
  std::optional<double> test_f1 = {};
  std::optional<double> test_top5_accuracy = {};
  // Set for jobs with a validation split. Only the epoch whose model is exported then has test_
  // figures, at the end of the job.
  std::optional<EvaluationFigures> validation = {};
  double learning_rate_factor = 1;  // The factor of this epoch.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(epoch, train_loss, train_accuracy, test_loss, test_accuracy, test_samples, duration,
            test_auc, test_rmse, test_mae, test_f1, test_top5_accuracy, validation,
            learning_rate_factor);
    CheckLoaded(archive, [this] { return CheckCount("epoch", epoch.value(), kEpochMax); });
  }
};

// Returns the figures on the test split. `accuracy` is set even if the objective has none.
inline EvaluationFigures TestFigures(const EpochResult& result) {
  return {.samples = result.test_samples,
          .loss = result.test_loss,
          .accuracy = result.test_accuracy,
          .auc = result.test_auc,
          .rmse = result.test_rmse,
          .mae = result.test_mae,
          .f1 = result.test_f1,
          .top5_accuracy = result.test_top5_accuracy};
}

struct NodeJoined {
  NodeId node;
  Role role = Role::kServer;
  std::string address;
  Incarnation incarnation;
};

struct NodeDied {
  NodeId node;
  Incarnation incarnation;
  std::string why;
  Instant last_seen;  // No message of it came after that.
};

// A server that held shards of the job died.
struct ServerLost {
  JobId job;
  NodeId node;
  std::string why;
};

// A server that the job had lost has registered again.
struct ServerReturned {
  JobId job;
  NodeId node;
};

// A live server has lost what it held of a job, as by a failed disk; its other jobs go on.
struct ServerFailed {
  JobId job;
  NodeId node;
  std::string why;
};

// A worker daemon cannot reach a server of the job, and both live.
struct LinkDied {
  JobId job;
  NodeId worker;
  NodeId server;
  bool shards_move = false;  // Away from the server; else the task leaves the worker.
};

// This scheduler was stopped or starved for so long that all leases began anew.
struct SchedulerStalled {
  absl::Duration late;  // How late the timer came.
};

// Most daemons fell silent at once: this scheduler is cut off, and declares nobody dead.
struct SchedulerIsolated {
  int silent = 0;
  int alive = 0;  // Includes the silent ones.
};

// Most daemons are heard again, or those that are not have been silent for too long.
struct IsolationEnded {
  absl::Duration lasted;
  int silent = 0;  // Daemons that are still not heard.
};

struct JobSubmitted {
  JobId job;
};

struct JobStarted {
  JobId job;
  std::vector<NodeId> servers;
};

// This scheduler has taken up a job of another cluster, from its logs.
struct JobAdopted {
  JobId job;
  std::string cluster;  // The cluster from which the job comes.
  absl::Duration record_age;
};

// A job that is not BSP was adopted, and its record does not have all batches of its logs.
struct TrainedTwice {
  JobId job;
  int64_t batches_max = 0;  // The most batches that may be trained once more.
};

struct PhaseStarted {
  JobId job;
  JobPhase phase = JobPhase::kPlacing;
  Epoch epoch;
};

// Shards whose primary was `from`, and is `to`. If both are the same, that server has restored
// them.
struct PrimaryMove {
  NodeId from;
  NodeId to;
  bool from_lives = false;
  int shards = 0;
  int swapped = 0;  // The shards among them that `from` holds as a replica in sync now.
};

// Shards moved: servers died, joined or are drained, replicas were filled or dropped.
struct RoutingChanged {
  JobId job;
  Generation generation;
  int promoted = 0;  // Shards with a new primary.
  int filling = 0;   // Replicas that are being filled.
  std::vector<PrimaryMove> moves =
      {};                   // One entry a pair of servers, for the shards with a new primary.
  int shards = 0;           // All shards of the job.
  int replicas = 0;         // The replicas of each shard that the job asks for.
  int degraded = 0;         // Shards with fewer replicas in sync.
  int degraded_before = 0;  // The same in the table before.
};

// A task process is to be started on a worker daemon.
struct TaskPlaced {
  TaskKey task;
  NodeId node;
  bool restart = false;  // The rank had an earlier incarnation.
};

struct TaskDied {
  TaskKey task;
  NodeId node;
  Failure failure;       // No reason: it was let go, because its work or its daemon ends.
  bool counted = false;  // It counts as a crash, against max_restarts.
};

// Training figures since the job's last Report.
struct Report {
  JobId job;
  Epoch epoch;
  int64_t iteration = 0;     // Same as in JobView.
  int64_t samples_done = 0;  // Samples of the whole job.
  int64_t samples = 0;       // The samples over which the following are means.
  double loss = 0;
  double accuracy = 0;
  double samples_per_second = 0;
  std::vector<int64_t> staleness_counts;  // [k]: pulls that saw staleness k.
  int64_t rows_cached = 0;                // Same as in JobView.
  int64_t rows_pulled = 0;
};

// Hashes of updates that a task computed, as it reported them.
struct UpdatesRecorded {
  TaskKey task;
  std::vector<UpdateHashes> updates;
};

struct EpochDone {
  JobId job;
  int64_t iteration = 0;
  int64_t samples_done = 0;
  EpochResult result;
};

// A checkpoint is complete or was given up.
struct CheckpointEnded {
  JobId job;
  CheckpointId id;
  std::string folder;
  std::string why;   // Empty: it is complete.
  NodeId node = {};  // The server whose part is missing. Empty: no single one.
};

// A snapshot can be read, or could not be taken.
struct SnapshotTaken {
  JobId job;
  CheckpointId id;
  int64_t iteration = 0;  // Same as in JobView.
  std::string why;        // Empty: it can be read.
};

// All tasks of the job end; it begins again where the checkpoint in `folder` stood.
struct WentBack {
  JobId job;
  std::string folder;  // Empty: it begins with its initial values, as it had not trained.
  // Set if nothing failed: training is over, and the model of this best epoch is exported.
  std::optional<Epoch> best = {};
};

// The model that is exported has been evaluated on the test split, for the first time.
struct ModelTested {
  JobId job;
  int64_t iteration = 0;  // JobView::iteration at the end of its epoch.
  EpochResult result;     // Result of the model's epoch.
};

// The scheduler cannot move the model to its place: the task that has written it must move it.
struct ModelLeftToTask {
  TaskKey task;
  std::string why;
};

// The model cannot be written. The servers keep it, for a while.
struct ModelKept {
  JobId job;
  std::string why;
};

struct JobEnded {
  JobId job;
  JobState state = JobState::kSucceeded;
  Failure failure;
};

// No process of an ended job is left, by the reports of live daemons, or the job is forgotten.
struct JobLeft {
  JobId job;
  Incarnation last;  // No incarnation of its tasks is above that.
};

using Event =
    std::variant<NodeJoined, NodeDied, ServerLost, ServerReturned, ServerFailed, LinkDied,
                 SchedulerStalled, SchedulerIsolated, IsolationEnded, JobSubmitted, JobStarted,
                 JobAdopted, TrainedTwice, PhaseStarted, RoutingChanged, TaskPlaced, TaskDied,
                 Report, EpochDone, ModelTested, CheckpointEnded, SnapshotTaken, WentBack,
                 ModelLeftToTask, ModelKept, JobEnded, JobLeft, UpdatesRecorded>;
using Events = std::vector<Event>;

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_MESSAGES_EVENTS_H_
