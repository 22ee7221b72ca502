// TaskWatch: watches the tasks of a job: what they report, whether they make progress, whether they
// reach the servers, how they end, and whether any is left.
//
//   PLACED --OnReport: it progresses, rests, or names what it waits for--> PLACED
//     --it says idle and has work, for contradiction_limit-------------> Hung
//     --it has work, or prepares, and stalls for task_progress_limit---> Hung
//     --it cannot reach a server, which others reach, for links.limit--> End, not counted
//     --it exits, fails, hangs, is silent, its daemon dies: End--------> dead; its leases go back
//   dead, more than max_restarts times by its own fault, or no task for worker_wait: the job fails
//
// JobTasks has the incarnations of the ranks, DeadLinks the links. Called by JobRun, which ends the
// job for the failures that are returned here. Thread safety: thread-compatible.
// Invariant: an end is counted only while the task is needed.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_TASK_WATCH_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_TASK_WATCH_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/parts/job_export.h"
#include "scheduler/core/job/parts/job_shared.h"
#include "scheduler/core/job/parts/job_training.h"
#include "scheduler/core/links/dead_links.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/work/job_tasks.h"

namespace capstan::scheduler {

class TaskWatch {
 public:
  TaskWatch(JobShared* job, JobTraining* training, JobExport* exporter)
      : job_(*job), training_(*training), exporter_(*exporter), links_(job->options.links) {}

  void Place(Rank rank, Incarnation incarnation, const NodeId& node, const std::string& address,
             Instant now, Events& events);
  // Accepts a report, except the failure that it may name, which is JobRun's.
  // Errors (nothing changes): kAborted          not the live incarnation of the rank.
  //                           kInvalidArgument  a count or a lease is out of range.
  absl::Status OnReport(const TaskReport& report, Instant now);
  // The task's incarnation is over, and counts as a crash if it is needed. Returns the failure with
  // which the job must end, if any. REQUIRES: it is placed.
  [[nodiscard]] std::optional<Failure> End(Rank rank, const Failure& why, Instant now,
                                           Events& events);
  // The same, but it is never counted as a crash. REQUIRES: it is placed.
  void EndUncounted(Rank rank, const Failure& why, Instant now, Events& events);
  void OnNodeDied(const NodeId& node, const std::string& why, Instant now, Events& events);

  struct Hanging {
    Rank rank;
    Failure why;
  };
  std::vector<Hanging> Hung(Instant now) const;
  // Leaves links that are dead: shards or tasks move.
  void CheckLinks(Instant now, Events& events);
  std::optional<Failure> CheckWorkers(Instant now);  // Fails if none lives for too long.
  Instant NextDeadline() const;
  void RestartLimits(Instant now);

  // True if the task has not reported its assigned work done, or prepares.
  bool HasUnfinishedWork(const Task& task) const;
  // At own pace: the rank's run is done, and its task has nothing to do before the export.
  bool IsRunDone(Rank rank) const;
  bool IsNeeded(Rank rank) const;  // The job still needs its task.
  const DeadLinks& links() const { return links_; }
  int restarts() const { return restarts_; }
  std::optional<Instant> without_worker_since() const { return without_worker_since_; }

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(crashes_, restarts_, first_failure_, last_death_);
    CheckLoaded(archive, [this] {
      absl::Status status = CheckRange("crashes", crashes_, 0, kCrashesMax);
      status.Update(CheckRange("restarts", restarts_, 0, kCrashesMax));
      return status;
    });
  }

 private:
  static constexpr int kCrashesMax = 1 << 30;  // Limit of loaded counts, which still grow.

  void EndIncarnation(Rank rank, const Failure& why, bool counted, Instant now, Events& events);
  absl::Status Validate(const TaskReport& report) const;
  void NoteContradiction(Task& task, bool moved, Instant now);
  void LeaveDeadLink(const DeadLinks::Silence& silence, Instant now, Events& events);
  bool IsReached(const DeadLinks::Link& link) const;  // A task on another worker reaches it.

  JobShared& job_;
  JobTraining& training_;
  JobExport& exporter_;
  DeadLinks links_;
  int crashes_ = 0;
  int restarts_ = 0;
  Failure first_failure_;   // Why the first task died by its own fault.
  std::string last_death_;  // Why a task died last, by whatever cause.
  std::optional<Instant> without_worker_since_;
};

// Returns " (7 rows written)", or "" if `activity` is empty.
std::string TextOf(const Activity& activity);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_TASK_WATCH_H_
