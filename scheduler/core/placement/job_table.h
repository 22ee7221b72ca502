// JobTable: all jobs that the scheduler knows: those that wait for places, those that run, and
// those that have ended, which are kept for a time. SchedulerCore changes it; the shell reads it
// through SchedulerCore::jobs().
//
// Thread safety: thread-compatible.
// Invariant: Running() has the jobs whose run has begun and whose end is not noted yet.
#ifndef CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_TABLE_H_
#define CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/checkpoints/checkpoints.h"
#include "scheduler/core/folders/job_folders.h"
#include "scheduler/core/job/job_history.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/job/views.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

// A job, from its submission until it is forgotten.
struct JobEntry {
  JobPlan plan;
  uint64_t number = 0;  // Order of submission.
  Instant submitted;
  std::unique_ptr<JobRun> run;  // Null: pending, or stopped before it started.
  bool stopped = false;         // Before it started.
  Instant stopped_at;
  Failure failure;                     // Why it was stopped, if no user stopped it.
  std::optional<RestoreFrom> restore;  // The checkpoint with which it begins.
  JobHistory history;
  std::string why_pending;
  uint64_t told_revision = 1;    // The revision of why_pending and of history.
  uint64_t desired_version = 0;  // The version of run that the nodes' desired states have.

  // The state of `run` that Changes named last.
  uint64_t written_version = 0;
  uint64_t written_revision = 0;
  Generation written_routing;
  Instant written_at;

  // The state of `run` in the last record for its servers. 0: none in this incarnation.
  uint64_t record = 0;
  Generation record_routing;
  Instant record_at;

  bool ended() const { return run == nullptr ? stopped : run->parts().ended(); }
  Instant ended_at() const { return run == nullptr ? stopped_at : run->parts().ended_at; }
  JobState state() const;
  uint64_t revision() const { return told_revision + (run == nullptr ? 0 : run->parts().revision); }
  JobView View(Instant now) const;  // It lacks the GPUs of the tasks.

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(number, submitted, stopped, stopped_at, failure, told_revision, restore, history);
    CheckLoaded(archive, [this] {
      return restore ? CheckResumePoint(restore->at, plan) : absl::OkStatus();
    });
  }
};

class JobTable {
 public:
  // A number for the next job's name, never the same again. Durable with the next Add.
  uint64_t TakeName() { return next_name_++; }
  // REQUIRES: plan.id was not used before.
  JobEntry& Add(const JobPlan& plan, Instant now);
  // Makes a job of another cluster, which was added by Load, a job of this cluster.
  void TakeUp(JobEntry& entry);
  void NoteRunning(const JobEntry& entry) { running_.emplace(entry.number, entry.plan.id); }
  void NoteEnded(const JobEntry& entry);
  void Remove(const JobId& job);

  JobEntry* Find(const JobId& job);  // Null: there is none.
  const JobEntry* Find(const JobId& job) const;
  JobRun* RunOf(const JobId& job);  // Null: no such job, or it never started.
  const JobRun* RunOf(const JobId& job) const;
  std::vector<JobEntry*> Running();              // Ordered by submission.
  std::vector<const JobEntry*> Running() const;  // Ordered by submission.
  std::vector<const JobEntry*> All() const;      // Ordered by submission.
  // Ended jobs that are to be forgotten, since there are more than `max`, or they ended at or
  // before `since`.
  std::vector<JobId> Outdated(size_t max, Instant since) const;
  // When the first ended job ended. Infinite future: none has.
  Instant FirstEnd() const;

  // The job that `owner` has submitted under this id, so that a repeated submission finds it. Null:
  // none is known.
  const JobId* JobOfSubmission(uint64_t submission_id, const std::string& owner) const;
  // Errors: kFailedPrecondition  a job that has not ended, and is not `owner`, writes into one of
  //         these folders. A waiting job counts, too: it cannot be refused any more when it starts.
  absl::Status CheckFolders(const JobFolders& folders, Instant now, const JobId& owner = {}) const;
  // Checks if a job of another cluster may be loaded and adopted (SchedulerCore::Adopt).
  // Errors: kAlreadyExists       its id is taken.
  //         kFailedPrecondition  a job that has not ended writes into the same folders.
  absl::Status CheckAdoption(const JobPlan& plan, Instant now) const;
  // Returns the job's checkpoints that may be removed now. The shell makes sure that no job which
  // pins one of them is submitted before the end of the removal.
  CheckpointRemoval CheckpointsToRemove(const JobId& job) const;
  // True if a running job may now write parts of a checkpoint, or a model, into `folder`, or may
  // read the checkpoint in it. `node`: only jobs that run on this node count. For hosts that do not
  // share this host's folders.
  bool MayWriteInto(const std::string& folder, const std::optional<NodeId>& node) const;
  bool MayReadFrom(const std::string& folder, const std::optional<NodeId>& node) const;
  // The ModelPublish of this exporter is still to be performed.
  bool AwaitsModel(const TaskKey& exporter) const;
  // Errors: kNotFound            no such job.
  //         kFailedPrecondition  the job has not been given servers.
  absl::StatusOr<std::shared_ptr<const Routing>> RoutingOf(const JobId& job) const;

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void SerializeCounters(Archive& archive) {
    archive(next_number_, next_name_);
  }
  // Adds a job that was saved. The caller fills in the rest.
  JobEntry& Load(const JobPlan& plan);

 private:
  // Returns the checkpoint floor of a job in `folders`: ids up to the floor are not the job's.
  CheckpointId FloorIn(const JobFolders& folders, CheckpointId floor) const;

  uint64_t next_number_ = 1;  // Order of submission.
  uint64_t next_name_ = 1;
  std::map<JobId, JobEntry> jobs_;
  std::map<uint64_t, JobId> running_;  // Keyed by number.
  std::map<uint64_t, JobId> ended_;    // Keyed by number.
  // Ended jobs keyed by the time of their end, each with its number.
  std::set<std::pair<Instant, uint64_t>> ended_by_time_;
};

absl::Status NoSuchJob(const JobId& job);                // kNotFound.
int ShardsOn(const JobTable& jobs, const NodeId& node);  // Copies, of running jobs.

// Null: it is not placed, or not any more.
const Task* TaskOf(const JobTable& jobs, const TaskKey& key);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_TABLE_H_
