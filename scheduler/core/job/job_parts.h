// JobParts: the parts of one running job, and the queries that concern several of them.
//
// Only JobRun changes them; all others have them const (JobRun::parts). A part uses only parts
// above it in the list below. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_JOB_PARTS_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_JOB_PARTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/parts/job_checkpoints.h"
#include "scheduler/core/job/parts/job_export.h"
#include "scheduler/core/job/parts/job_shared.h"
#include "scheduler/core/job/parts/job_training.h"
#include "scheduler/core/job/parts/server_watch.h"
#include "scheduler/core/job/parts/task_watch.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

struct JobParts : JobShared {
  JobParts(const JobPlan& job_plan, std::shared_ptr<const Routing> table,
           const JobRunOptions& job_options, Instant now, std::optional<RestoreFrom> restore);
  ~JobParts();
  JobParts(const JobParts&) = delete;  // Parts point to one another.
  JobParts& operator=(const JobParts&) = delete;

  JobExport exporter;
  JobCheckpoints checkpoints;
  JobTraining training;
  TaskWatch task_watch;
  ServerWatch server_watch;

  // ---- what the job wants
  std::vector<Rank> UnplacedRanks() const;  // The ranks that want a task slot.
  std::vector<TaskKey> PlacedTasks() const;
  // At own pace: the rank's run is done, also if it is done in the checkpoint with which the job is
  // about to begin, or the job exports.
  bool IsRunDone(Rank rank) const;
  // Ranks must not be placed on workers that are to be avoided, since some task works, or can yield
  // a better place.
  bool AvoidsWorkers() const;
  // At own pace: ranks whose run is done, one for each rank that has no place or is stranded
  // (DeadLinks). Their tasks should leave if there is no free slot.
  std::vector<Rank> YieldingRanks() const;

  // The server has shards of the job, or the worker runs a task of it.
  bool RunsOn(const NodeId& node) const;

  // ---- folders
  // A server writes its part of a checkpoint there now, or a task the model.
  bool WritesInto(const std::string& folder) const;
  // The checkpoint in `folder` is the job's, or the one with which it began, or lies beside that
  // one.
  bool MayGoBackTo(const std::string& folder) const;

  // Grows with every decision, which must be durable before anybody hears of it. Changes that only
  // `revision` counts are progress, which may be lost, since tasks report it again.
  uint64_t durable_version() const {
    return desired_version + decisions + checkpoints.all().changes();
  }

  // ---- durable state, in the form of scheduler/store/archive.h
  // All but what the constructor takes. `membership_seen`: JobRun's.
  template <typename Archive>
  void Serialize(Archive& archive, Generation& membership_seen) {
    archive(state, phase, failure, started, ended_at, tasks, members, metrics, epochs, training,
            exporter, task_watch, revision, desired_version, decisions, membership_seen,
            checkpoints, shards, server_watch);
    training.SerializeWork(archive);
    archive.Appended(training_time);
    CheckLoaded(archive, [this] { return Check(); });
  }

 private:
  absl::Status Check() const;  // Errors: kDataLoss  the phase needs work that is not there.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_JOB_PARTS_H_
