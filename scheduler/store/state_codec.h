// State codec: the scheduler core's durable state as rows of a Store, and back.
//
//   "revisions"     how much was decided: changes with every other row
//   "nodes"         daemons, task slots, desired states, the counters
//   "job/<id>"      the job's plan and where it stands
//   "routing/<id>"  its routing table, once it has one
//
// Rows of other names are left alone. Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_STORE_STATE_CODEC_H_
#define CAPSTAN_SCHEDULER_STORE_STATE_CODEC_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/core/changes.h"
#include "scheduler/core/resume_point.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/store_write.h"
#include "scheduler/store/archive.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

// What `changes` names, as `core` is now: to be called after the step that made them and before the
// next one.
std::vector<StoreWrite> EncodeChanges(const SchedulerCore& core, const Changes& changes,
                                      const Moment& moment);
// Of these, the rows of jobs.
std::vector<StoreWrite> EncodeJobs(const SchedulerCore& core, const Changes& changes,
                                   const Moment& moment);

// The core that wrote `rows`, with the leases of all that lived renewed. No rows: a new one.
// `actions`: what follows from that; to be performed as those of any step.
// Errors: kDataLoss  a row cannot be read; names it.
absl::StatusOr<std::unique_ptr<SchedulerCore>> RestoreCore(const StoreRows& rows,
                                                           const SchedulerCore::Options& options,
                                                           const Moment& moment, Actions& actions);

// Loads one job of `rows` into a core that does not know it: SchedulerCore::LoadJob.
// Errors: kDataLoss  its rows cannot be read; the core does not know it.
absl::Status LoadJob(const StoreRows& rows, const JobId& job, const Moment& moment,
                     SchedulerCore& core);

// A checkpoint's CheckpointManifest.job_state.
std::string EncodeResumePoint(const ResumePoint& at);
// Errors: kDataLoss  not what this program writes.
absl::StatusOr<ResumePoint> DecodeResumePoint(const std::string& bytes);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_STATE_CODEC_H_
