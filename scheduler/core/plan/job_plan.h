// JobPlan: the part of an admitted job that the scheduler's core uses; everything else of the job
// file stays in the shell. Made by scheduler/admission/admission.h. Thread safety: values, and a
// function of its argument.
#ifndef CAPSTAN_SCHEDULER_CORE_PLAN_JOB_PLAN_H_
#define CAPSTAN_SCHEDULER_CORE_PLAN_JOB_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/devices/devices.h"
#include "common/metrics/evaluation.h"
#include "common/types/consistency_rule.h"
#include "common/types/ids.h"
#include "scheduler/core/folders/job_folders.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/messages/plugin_rules.h"
#include "scheduler/core/plan/epoch_decisions.h"

namespace capstan::scheduler {

struct JobPlan;
// Checks a plan that was read from a disk or a server by the limits of a job file: whatever the
// core computes with such a plan can be computed.
// Errors: kDataLoss  names the job file's field, its value and the expected range.
absl::Status CheckPlan(const JobPlan& plan);

struct JobPlan {
  JobId id;
  ConsistencyRule consistency;
  int workers = 1;       // Tasks, >= 1; all must be free before the job starts.
  int servers = 0;       // Servers that hold its shards; 0: all available ones.
  int max_restarts = 3;  // Task crashes that are forgiven, >= 0.
  absl::Duration worker_wait = absl::Seconds(60);  // How long a job lasts without a live worker.
  int epochs = 1;                                  // >= 1.
  int64_t batch_size = 1;                          // Samples a micro-batch, >= 1.
  int64_t train_count = 0;                         // Samples an epoch, >= 1.
  int64_t test_count = 0;                          // 0: no test split.
  // Evaluated after each epoch in place of the test split; 0: none.
  int64_t validation_count = 0;
  int64_t scores = 1;  // Scores of each evaluated sample that has any, >= 1.
  DecisionPlan decide;
  int64_t iterations_max = 0;     // BSP iterations, SSP and ASP batches; 0: no limit.
  std::vector<TableSize> tables;  // Ordered by table index.
  std::string export_path;        // Folder of the model.
  int replicas = 0;               // Copies of each shard beside the primary, 0 to 3.
  bool log = false;               // Acknowledged pushes survive the loss of all processes.
  absl::Duration server_wait = absl::Seconds(60);  // How long a job lasts with lost shards.
  int64_t checkpoint_iterations = 0;    // From one checkpoint to the next; 0: not by count.
  absl::Duration checkpoint_interval;   // The same in time; zero: not by time.
  int checkpoints_kept = 2;             // >= 1.
  bool checkpoints_incremental = true;  // Checkpoints of sparse tables hold what changed.
  std::string checkpoint_folder;        // Holds the folders of the checkpoints.
  CheckpointId checkpoint_floor;        // Ids in it up to this one are not the job's.
  JobFolders folders;                   // Output and checkpoint folder, comparable.
  Objective objective = Objective::kClasses;
  DeviceNeed device;           // The need of each task.
  uint64_t submission_id = 0;  // The client's name for its submission; 0: it gave none.
  // Unique among all jobs of all clusters. After the loss of a store, a later job may have the same
  // `id`.
  std::string unique_id;
  // The role and name of the submitter (common/security/job_access.h). Empty: unknown.
  std::string owner;
  // The plugin rules that update its tables, each once. Only servers that have all of them hold its
  // shards.
  std::vector<PluginRule> plugin_rules;
  // Each task runs a program at its own pace. The samples are these runs: sample r is the run of
  // rank r. There is one epoch, and each batch has one sample.
  bool own_pace = false;
  // The smallest time to live of a table's rows, in seconds of training. 0: none has one.
  int64_t ttl_seconds = 0;

  // Whether a log with this job and unique id was written for this job, not for another with its
  // id.
  bool HasLog(const JobId& job, const std::string& unique) const {
    return log && job == id && unique == unique_id;
  }
  // The least number of servers with which it can start.
  int servers_needed() const { return servers > replicas ? servers : replicas + 1; }

  // Durable, in the form of scheduler/store/archive.h.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(id, consistency, workers, servers, max_restarts, worker_wait, epochs, batch_size,
            train_count, test_count, validation_count, scores, decide, iterations_max, tables,
            export_path, replicas, log, server_wait, checkpoint_iterations, checkpoint_interval,
            checkpoints_kept, checkpoints_incremental, checkpoint_folder, checkpoint_floor, folders,
            objective, device, submission_id, unique_id);
    archive.Appended(owner, plugin_rules, own_pace, ttl_seconds);
    CheckLoaded(archive, [this] { return CheckPlan(*this); });
  }
  friend bool operator==(const JobPlan&, const JobPlan&) = default;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLAN_JOB_PLAN_H_
