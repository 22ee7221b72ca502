// Job capabilities: makes the capabilities that the scheduler gives to the tasks and readers of a
// job, so that the job's servers admit them (common/security/capability.h).
//
// A job that has no key, as in the simulator, gets none. Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_ADMISSION_JOB_CAPABILITIES_H_
#define CAPSTAN_SCHEDULER_ADMISSION_JOB_CAPABILITIES_H_

#include <string>

#include "absl/time/time.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"

namespace capstan::scheduler {

// A task trains on while the scheduler is away, so its capability must outlast the absence. It is
// renewed when half of the time is over: a task can always do without the scheduler for 12 hours.
// README.md of common/security says why not longer or shorter.
inline constexpr absl::Duration kCapabilityLifetime = absl::Hours(24);

// Returns true if a capability that expires at `expiry` is to be replaced at `now`.
bool IsToBeRenewed(absl::Time expiry, absl::Time now);

// Both return an empty string if the job has no key.
std::string TaskCapability(const AdmittedJob& job, Rank rank, Incarnation incarnation,
                           absl::Time now);
std::string ReadCapability(const AdmittedJob& job, absl::Time now);

// Sets the capability of each task in `response`. REQUIRES: `jobs` holds the jobs of these tasks.
void AddTaskCapabilities(const AdmittedJobs& jobs, absl::Time now, v1::SyncNodeResponse* response);

// Adds a new capability to `response` if the one that `request` reports is to be renewed.
void RenewCapability(const v1::SyncTaskRequest& request, const AdmittedJob& job, absl::Time now,
                     v1::SyncTaskResponse* response);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ADMISSION_JOB_CAPABILITIES_H_
