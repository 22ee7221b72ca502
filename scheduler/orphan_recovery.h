// OrphanRecovery: carries out ListRecoverable and RecoverJob. It recovers jobs of another cluster,
// whose scheduler has lost its store, from the records and logs of servers (OrphanedLogs).
//
// A recovery reads and writes folders without the mutex of DurableState, so that other calls do not
// wait. SchedulerService calls List in any thread and Recover in its admission thread.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SCHEDULER_ORPHAN_RECOVERY_H_
#define CAPSTAN_SCHEDULER_ORPHAN_RECOVERY_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/storage/posix_disk.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/state/durable_state.h"
#include "scheduler/state/held_calls.h"
#include "scheduler/state/orphaned_logs.h"
#include "scheduler/store/job_record.h"

namespace capstan::scheduler {

class OrphanRecovery {
 public:
  explicit OrphanRecovery(DurableState* state) : state_(state) {}  // It outlives the recovery.

  // Answers the call.
  void List(const Call<v1::ListRecoverableResponse>& call) ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Answers the call unless it returns an error: then the caller answers the call with that error.
  // Errors: those of RecoverJob.
  absl::Status Recover(const v1::RecoverJobRequest& request,
                       const Call<v1::RecoverJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(state_->mutex());

 private:
  // Same as Recover(), for the job of `record`.
  absl::Status TakeUp(const JobRecord& record, AdmittedJob job, CheckpointId checkpoint_floor,
                      const Call<v1::RecoverJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  v1::RecoverableJob Describe(const std::string& unique_id, const OrphanedJob& orphan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex());
  // Checks if RecoverJob would succeed now. Errors: those of RecoverJob.
  absl::Status WouldRecover(const OrphanedJob& orphan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex());

  DurableState* const state_;
  PosixDisk disk_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ORPHAN_RECOVERY_H_
