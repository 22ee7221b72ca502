// State codec: encodes the scheduler core's durable state as rows of a Store, and decodes it.
//
//   "revisions"     the count of decisions, which changes with every other row
//   "nodes"         daemons, task slots, desired states, the counters
//   "job/<id>"      the job's plan and its present state
//   "routing/<id>"  its routing table, if it has one
//
// Other owners' rows are passed over. The versions are in schema_version.h.
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_STORE_STATE_CODEC_H_
#define CAPSTAN_SCHEDULER_STORE_STATE_CODEC_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/core/changes.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/store_write.h"
#include "scheduler/store/archive.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

// Encodes the present state of everything that `changes` names. Call it after the step that made
// the changes, and before the next step.
std::vector<StoreWrite> EncodeChanges(const SchedulerCore& core, const Changes& changes,
                                      const Moment& moment);
// Same as EncodeChanges(), but only the rows of jobs.
std::vector<StoreWrite> EncodeJobs(const SchedulerCore& core, const Changes& changes,
                                   const Moment& moment);

// Returns a core in the state of the one that wrote `rows`, with the leases of all live nodes and
// tasks renewed. Without rows it is a new core. The caller performs `actions` as those of any step.
// Errors: kDataLoss  a row cannot be read; names it.
absl::StatusOr<std::unique_ptr<SchedulerCore>> RestoreCore(const StoreRows& rows,
                                                           const SchedulerCore::Options& options,
                                                           const Moment& moment, Actions& actions);

// Returns the plan of one job of `rows`.
// Errors: kDataLoss  its row is missing or cannot be read.
absl::StatusOr<JobPlan> LoadPlan(const StoreRows& rows, const JobId& job);

// Loads one job of `rows` into a core that does not know it (SchedulerCore::LoadJob).
// Errors: kDataLoss  its rows are missing or cannot be read, and the core still does not know the
//                    job; or the core knows the job already.
absl::Status LoadJob(const StoreRows& rows, const JobId& job, const Moment& moment,
                     SchedulerCore& core);

// Returns the bytes for CheckpointManifest.job_state.
std::string EncodeResumePoint(const ResumePoint& at);
// Errors: kDataLoss  the bytes are damaged, have another format, or a newer Capstan wrote them.
absl::StatusOr<ResumePoint> DecodeResumePoint(const std::string& bytes);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_STATE_CODEC_H_
