// FollowJob: shows a job's progress, and on demand what its tasks write, until it ends, is
// interrupted, or the scheduler stays away.
//
// Thread safety: main thread; an Interrupts object must exist.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_FOLLOW_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_FOLLOW_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/client/client.h"

namespace capstan::cli {

// kLogs: progress, and what the tasks write, each line after "[rank N] ".
// kChanges: only the job's status, as a line of JSON after each change, the last one included.
enum class Show { kProgress, kLogs, kChanges, kNothing };

struct FollowOptions {
  Show show = Show::kProgress;
  // The longest time for which the scheduler may be unreachable. The job runs on meanwhile.
  absl::Duration patience = absl::Minutes(1);
};

// Prints to standard output: a progress bar on a terminal, plain lines elsewhere. Returns the
// status of the ended job.
// Errors: kCancelled  a signal came (Interrupts::Signal() returns it); the job goes on.
//         kUnavailable, kDeadlineExceeded  the scheduler was away for longer than `patience`.
//         else  the scheduler's answer (kNotFound: no such job).
absl::StatusOr<v1::JobStatus> FollowJob(SchedulerClient& scheduler, const std::string& job_id,
                                        const FollowOptions& options);

// Returns the exit code for an ended job: 0 if it succeeded, else 1.
int JobExitCode(const v1::JobStatus& job);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_FOLLOW_H_
