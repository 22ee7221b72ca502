// JobSubmission: carries out SubmitJob. It checks a job and its data, finds the checkpoint that the
// job restores, names the job, makes its folders and submits it to the core.
//
// The check reads all data of the job, so it runs before the step of the core and without the mutex
// of DurableState. SchedulerService calls this class in its admission thread.
// Thread safety: thread-compatible.
// Invariant: a submission that its owner repeats under its id gives the job that the first call
//            made.
#ifndef CAPSTAN_SCHEDULER_JOB_SUBMISSION_H_
#define CAPSTAN_SCHEDULER_JOB_SUBMISSION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/check/check_job.h"
#include "common/net/socket/wake_up.h"
#include "common/storage/files/allowed_paths.h"
#include "common/storage/posix_disk.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/artifact_publisher.h"
#include "scheduler/core/plan/resume_point.h"
#include "scheduler/job_rights.h"
#include "scheduler/state/durable_state.h"
#include "scheduler/state/held_calls.h"

namespace capstan::scheduler {

class JobSubmission {
 public:
  // A function like CheckJob. Its result lists the mistakes in the job; an error means that the
  // check itself failed. When the descriptor `stop` becomes readable, it returns kUnavailable soon.
  using JobChecker = std::function<absl::StatusOr<JobCheck>(const v1::JobSpec& spec, int stop)>;

  // `state`, `artifacts` and `allowed` (null: jobs may name any path) outlive the submission. Null
  // `check_job`: CheckJob in this process.
  JobSubmission(const std::string& data_folder, const std::string& cluster_id,
                const AllowedPaths* allowed, JobChecker check_job, DurableState* state,
                ArtifactPublisher* artifacts);

  // Answers the call unless it returns an error: then the caller answers the call with that error.
  // The private methods that take the call do the same.
  // Errors: those of SubmitJob.
  absl::Status Submit(const v1::SubmitJobRequest& request, const JobCaller& caller,
                      const Call<v1::SubmitJobResponse>& call) ABSL_LOCKS_EXCLUDED(state_->mutex());

  // Gives up the check that runs, and later ones. Thread-safe. REQUIRES: the state is stopped.
  void Stop() { stop_.Wake(); }

 private:
  absl::Status Check(const v1::SubmitJobRequest& request, const JobCaller& caller,
                     const Call<v1::SubmitJobResponse>& call) ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Whether the caller may name the paths in the request. `uploaded`, here and below: the path of
  // the initial weights if the caller has sent them (files/uploads.h), else empty.
  absl::Status CheckPaths(const v1::SubmitJobRequest& request, const JobCaller& caller,
                          const std::string& uploaded) const;
  absl::Status Admit(const v1::SubmitJobRequest& request, const JobCaller& caller,
                     const std::string& uploaded, const Call<v1::SubmitJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  absl::StatusOr<JobCheck> RunCheck(const v1::JobSpec& spec) ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Errors: those of FixPluginDigests.
  absl::Status FindPlugins(AdmittedJob& job) ABSL_LOCKS_EXCLUDED(state_->mutex());
  absl::Status NameAndEnter(AdmittedJob job, OldModel old_model, std::optional<RestoreFrom> restore,
                            const Call<v1::SubmitJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  absl::Status Enter(const std::shared_ptr<const AdmittedJob>& admitted,
                     const std::optional<RestoreFrom>& restore,
                     const Call<v1::SubmitJobResponse>& call) ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Returns the folder of the checkpoint that the job restores. Empty: it restores none. Each
  // checkpoint that was passed over becomes a warning in `response`.
  // Errors: kInvalidArgument  fields that exclude each other; else those of SubmitJob.
  absl::StatusOr<std::string> FolderToRestore(const v1::SubmitJobRequest& request,
                                              const JobCaller& caller,
                                              v1::SubmitJobResponse& response)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  absl::StatusOr<std::string> NewestCheckpointOf(const JobId& job, const JobCaller& caller,
                                                 v1::SubmitJobResponse& response)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Writes job.initial_values as a checkpoint, and returns the point where the job begins.
  // REQUIRES: the job has its ids.
  absl::StatusOr<RestoreFrom> KeepInitialValues(AdmittedJob& job);

  const std::string data_folder_;
  const std::string cluster_id_;
  const AllowedPaths* const allowed_;
  const JobChecker check_job_;
  WakeUp stop_;
  DurableState* const state_;
  ArtifactPublisher* const artifacts_;
  PosixDisk disk_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_JOB_SUBMISSION_H_
