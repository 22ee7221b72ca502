// Submission of a job: checks the job file, sends the job to the scheduler, and follows it.
//
// Thread safety: main thread; an Interrupts object must exist for following.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_SUBMIT_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_SUBMIT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/command_line/command.h"
#include "proto/job.pb.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/client/patience.h"
#include "scheduler/cli/job/follow.h"
#include "scheduler/cli/settings/settings.h"

namespace capstan::cli {

// kSkip: this machine cannot read the data. The scheduler still checks it.
enum class DataCheck { kDo, kSkip };

// The sources from which a job's specification is made.
struct JobSource {
  std::string file;
  std::string base;                    // Another file, for fields that `file` lacks. Empty: none.
  std::vector<std::string> overrides;  // "training.epochs=3", applied in this order.
};

// Adds the options that fill in a JobSource; it outlives the parsing.
void AddJobSource(Command command, JobSource* source);

// Errors: kInvalidArgument  a line for each mistake, "file:line:column: field: ...".
//         kNotFound, kPermissionDenied  a job file cannot be read.
absl::StatusOr<v1::JobSpec> LoadCheckedJob(const JobSource& source, DataCheck data_check);

// Prints the mistakes in a job file to standard error, in a form that editors understand. Returns
// the exit code.
int FailJobFile(const absl::Status& status);

// Whether a signal, which ends the following of the job, also stops the job.
enum class AfterSignal { kGoesOn, kStopJob };

// Submits the job, and repeats the call while the scheduler is away. It fills in submission_id, so
// a call whose answer was lost makes no second job. Warnings of the answer go to standard error.
// A signal ends the wait for the answer. With kStopJob the function then repeats the call once, for
// kCallTimeout, so that the caller has the id of the job that is to be stopped.
// Errors: kUnavailable, kDeadlineExceeded  the scheduler was away for too long, and may or may not
//         have accepted the job. kCancelled  a signal came before an answer. Those of SubmitJob.
absl::StatusOr<v1::SubmitJobResponse> SubmitPatiently(SchedulerClient& scheduler,
                                                      v1::SubmitJobRequest request,
                                                      AfterSignal after_signal,
                                                      Patience::Options options = {});

// Reports a submission that failed. Returns the exit code: 130 or 143 after a signal.
int FailSubmission(const absl::Status& status);

// Follows a submitted job and prints its end. Returns the exit code: the job's, 75 if the scheduler
// stays away, 130 or 143 after a signal. After a signal the job is stopped, or it goes on and the
// user sees the command that stops it (`after_signal`). With JSON output only the end is printed,
// unless `show` is kChanges.
int FollowToEnd(SchedulerClient& scheduler, const std::string& job_id, OutputFormat format,
                AfterSignal after_signal, Show show = Show::kProgress);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_SUBMIT_H_
