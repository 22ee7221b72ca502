// JobShared: the state that the parts of a running job share: its plan, its state and phase, the
// counters by which others notice changes, and the state machines that most parts read.
//
//   phase:  PLACING --all servers have made the tables--> STARTING --every placed task is ready-->
//           TRAINING(0) --all leases done--> EVALUATING(0) --all results in--> TRAINING(1) ... -->
//           EXPORTING --> FINISHING
//           TRAINING, or between epochs --a checkpoint is due, all is quiet--> CHECKPOINTING -->
//           where it was
//           any but FINISHING --shards are lost--> RECOVERING, which lies over the phase
//
// Each part has a pointer to it, changes only what its header says, and counts its changes here.
// JobRun alone ends the job. Thread safety: thread-compatible.
// Invariants: (1) generations and the counters never decrease.   (2) an ended job never changes.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_SHARED_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_SHARED_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/parts/job_epochs.h"
#include "scheduler/core/links/dead_links.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/job_metrics.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/training_time.h"
#include "scheduler/core/shards/job_members.h"
#include "scheduler/core/shards/shard_map.h"
#include "scheduler/core/work/job_tasks.h"

namespace capstan::scheduler {

// The limits and pauses of every job.
struct JobRunOptions {
  JobTasks::Options tasks;
  // Time that a server has to apply what it is sent, or to make one more shard.
  absl::Duration server_limit = absl::Seconds(60);
  absl::Duration contradiction_limit = absl::Seconds(10);  // Limit of a task idle with work.
  absl::Duration finish_limit = absl::Seconds(10);  // Time that tasks have to exit at the end.
  absl::Duration task_progress_limit = absl::Minutes(5);  // Limit of a task that waits for nothing.
  absl::Duration report_interval = absl::Seconds(1);      // Between two Report events.
  absl::Duration lease_ahead = absl::Seconds(60);  // The longest sample lease, at the task's pace.
  absl::Duration keep_model = absl::Hours(1);  // How long a model is kept that cannot be written.
  DeadLinks::Options links;
  ShardMap::Options shards;  // `replicas` and `servers` are set from the plan.
};

struct JobShared {
  // `first`: the generation of the first membership.
  JobShared(const JobPlan& job_plan, std::shared_ptr<const Routing> table,
            const JobRunOptions& job_options, Instant now, Generation first);

  bool ended() const { return state != JobState::kRunning; }
  bool HasBegun() const;  // It trains, or has trained, since it was placed.
  // Enters `next`, which counts as a decision and as a visible change.
  void SetPhase(JobPhase next, Events& events);
  // Sets the training time to that at which the tables were taken.
  void SetTrained(absl::Duration trained, Instant now);

  const JobPlan plan;
  const JobRunOptions options;
  ShardMap shards;
  // The table of `shards`. Immutable: replies on their way out share it.
  std::shared_ptr<const Routing> routing;

  JobState state = JobState::kRunning;
  JobPhase phase = JobPhase::kPlacing;  // Never kRecovering, which only views show.
  Failure failure;
  Instant started;
  Instant ended_at;

  JobTasks tasks;
  JobMembers members;
  JobMetrics metrics;
  JobEpochs epochs;
  TrainingTime training_time;

  uint64_t revision = 1;         // Grows with every visible change.
  uint64_t desired_version = 1;  // Grows when a daemon's desired state may change.
  uint64_t decisions = 0;        // Decisions that desired_version does not count.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_SHARED_H_
