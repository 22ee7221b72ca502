// Views: the state of jobs and nodes as users see it. Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_VIEWS_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_VIEWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/job_history.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

struct TaskView {
  Rank rank;
  Incarnation incarnation;  // 0: it never had a task slot.
  NodeId node;
  std::string address;
  std::string state;  // One of those that proto/scheduler.proto names.
  Iteration iteration;
  int64_t samples = 0;
  Instant last_report;
  Wait wait;
  Activity activity = {};
  std::vector<int> gpus = {};  // The GPUs of its worker that are its own.
};

struct JobView {
  JobId id;
  JobState state = JobState::kPending;
  Failure failure;
  std::string detail;  // One sentence.
  uint64_t revision = 0;
  Instant submitted;
  std::optional<Instant> started;
  std::optional<Instant> ended;
  std::optional<JobPhase> phase;  // While it runs.
  Epoch epoch;
  int64_t iteration = 0;  // BSP: finished by all. SSP, ASP: batches finished, summed over tasks.
  int64_t samples_done = 0;
  int64_t samples_total = 0;
  double samples_per_second = 0;
  double loss = 0;  // Training, mean over the current epoch so far.
  double accuracy = 0;
  std::vector<EpochResult> results;
  std::optional<Epoch>
      best_epoch;  // The epoch whose model is exported. Nothing: the last, as far as is known.
  std::vector<int64_t> staleness_counts;
  int64_t rows_cached = 0;  // Rows of batches that workers had kept.
  int64_t rows_pulled = 0;  // Rows of batches that they pulled. Both: if they keep rows.
  int restarts = 0;
  std::string model_folder;                 // Where the model is, or will be written.
  bool has_model = false;                   // The model is written there.
  std::string saved_folder;                 // The folder of the checkpoint that SaveAndStop made.
  std::optional<Instant> model_kept_until;  // Set if it could not be written.
  std::vector<TaskView> tasks;
  std::vector<JobEvent> events;  // Oldest first; at most JobHistory::kEventsMax, the newest.
  int64_t events_forgotten = 0;  // How many older ones.
};

struct NodeView {
  NodeId id;
  NodeInfo info;
  Incarnation incarnation;
  bool alive = false;
  bool draining = false;  // Also: it is about to stop.
  Instant last_seen;
  int tasks = 0;                     // Worker: slots taken.
  int shards = 0;                    // Server: held for running jobs, as primary or replica.
  std::vector<int> gpus_taken = {};  // Worker: of info.devices, by tasks.
  std::vector<int> gpus_lost = {};   // Worker: of info.devices, given to nobody.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_VIEWS_H_
