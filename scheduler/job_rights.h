// Job rights: decides what a caller may do with a job. A user's rights depend on the job's owner
// (common/security/job_access.h), a node's rights on whether the job runs on the node.
//
// A scheduler without credentials has no callers by name: then every check of a caller succeeds.
// The functions serve SchedulerService and JobSubmission, which hold the mutex of DurableState; the
// class serves the other services of the scheduler, which do not.
// Thread safety: functions without state; the class is thread-safe.
#ifndef CAPSTAN_SCHEDULER_JOB_RIGHTS_H_
#define CAPSTAN_SCHEDULER_JOB_RIGHTS_H_

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/certificates/identity.h"
#include "common/types/ids.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/placement/job_table.h"
#include "scheduler/state/durable_state.h"

namespace capstan::scheduler {

// Empty: the scheduler authenticates nobody.
using JobCaller = std::optional<Identity>;

// Returns the name of the caller. Empty: the caller is not authenticated.
inline std::string NameOf(const JobCaller& caller) {
  return caller.has_value() ? caller->name : "";
}

// Errors: kNotFound  there is no such job, or it is another user's; the error does not say which.
absl::Status CheckMayRead(const AdmittedJobs& jobs, const JobId& job, const JobCaller& caller);
absl::Status CheckMayChange(const AdmittedJobs& jobs, const JobId& job, const JobCaller& caller);

// Checks that a report of a live task comes from the worker that runs it. OK if there is no such
// task: the core answers that.
// Errors: kPermissionDenied  names the caller, the task and its worker.
absl::Status CheckReportsOwnTask(const JobTable& jobs, const TaskKey& task,
                                 const JobCaller& caller);

// Checks that a worker reads a job for a task of it, by the task's capability
// (common/security/capability.h). Other callers need none. `now` is by the wall clock.
// Errors: kPermissionDenied  there is no capability, it has expired, is forged or another job's, or
//                            its task runs on another worker; says which.
absl::Status CheckReadsForTask(const AdmittedJob& job, const JobTable& jobs,
                               const JobCaller& caller, absl::string_view capability,
                               absl::Time now);

class JobRights {
 public:
  explicit JobRights(DurableState* state) : state_(state) {}  // `state` outlives this.

  bool HasJob(const JobId& job) ABSL_LOCKS_EXCLUDED(state_->mutex());
  // False if there is no such job.
  bool MayRead(const JobId& job, const JobCaller& caller) ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Whether the caller is the worker that runs or ran this incarnation of a task. For an
  // incarnation before the last, the scheduler only knows whether the job runs or ran on the
  // worker.
  bool MayKeepLog(const TaskKey& task, const JobCaller& caller)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Whether a job that runs on the calling node writes a part of a checkpoint or a model into
  // `folder` now (MayWriteInto), or may go back to the checkpoint in it (MayReadFrom). Both are
  // false once the state is stopped.
  bool MayWriteInto(const std::string& folder, const JobCaller& caller)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  bool MayReadFrom(const std::string& folder, const JobCaller& caller)
      ABSL_LOCKS_EXCLUDED(state_->mutex());

 private:
  DurableState* const state_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_JOB_RIGHTS_H_
