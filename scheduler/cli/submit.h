// Submitting a job: the file is checked whole, then handed over, then followed.
//
// Thread safety: main thread; an Interrupts object must exist for following.
#ifndef CAPSTAN_SCHEDULER_CLI_SUBMIT_H_
#define CAPSTAN_SCHEDULER_CLI_SUBMIT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "scheduler/cli/client.h"
#include "scheduler/cli/patience.h"
#include "scheduler/cli/settings.h"

namespace capstan::cli {

// kSkip: the data lies where this machine cannot see it; the scheduler still checks it.
enum class DataCheck { kDo, kSkip };

// The job in `path` with the overrides ("training.epochs=3") applied in order.
// Errors: kInvalidArgument  a line for everything that is wrong, "file:line:column: field: ...".
//         kNotFound, kPermissionDenied  the job file.
absl::StatusOr<v1::JobSpec> LoadCheckedJob(const std::string& path,
                                           const std::vector<std::string>& overrides,
                                           DataCheck data_check);

// Prints what is wrong with a job file to standard error, in the form that editors understand, and
// returns the exit code.
int FailJobFile(const absl::Status& status);

// Hands the job over, and goes on trying while the scheduler is away: a submission that was carried
// out and whose answer was lost makes no second job. Its submission_id is filled in. Warnings of
// the answer go to standard error.
// Errors: kUnavailable, kDeadlineExceeded  nobody answers for too long: nobody knows whether the
//         job was taken. kCancelled  a signal came while nobody answered. Those of SubmitJob.
absl::StatusOr<v1::SubmitJobResponse> SubmitPatiently(SchedulerClient& scheduler,
                                                      v1::SubmitJobRequest request,
                                                      Patience::Options options = {});

// What becomes of the job when the user stops following it.
enum class AfterSignal { kGoesOn, kStopJob };

// Follows a submitted job and prints how it ended. Returns the exit code: the job's, 75 if the
// scheduler stays away, 130 or 143 after a signal, when the job goes on and the user is told how to
// stop it, or it is stopped.
int FollowToEnd(SchedulerClient& scheduler, const std::string& job_id, OutputFormat format,
                AfterSignal after_signal);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_SUBMIT_H_
