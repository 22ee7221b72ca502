// FollowJob: shows a job's progress until it ends, is interrupted, or the scheduler stays away.
//
// Thread safety: main thread; an Interrupts object must exist.
#ifndef CAPSTAN_SCHEDULER_CLI_FOLLOW_H_
#define CAPSTAN_SCHEDULER_CLI_FOLLOW_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/client.h"

namespace capstan::cli {

enum class Show { kProgress, kNothing };

struct FollowOptions {
  Show show = Show::kProgress;
  // How long the scheduler may be unreachable before following ends; the job runs on meanwhile.
  absl::Duration patience = absl::Minutes(1);
};

// Prints to standard output: a bar that is redrawn on a terminal, plain lines elsewhere. Returns
// the status of the ended job.
// Errors: kCancelled  a signal came (Interrupts::Signal() says which); the job goes on.
//         kUnavailable, kDeadlineExceeded  the scheduler was away for longer than `patience`.
//         else  what the scheduler answered (kNotFound: no such job).
absl::StatusOr<v1::JobStatus> FollowJob(SchedulerClient& scheduler, const std::string& job_id,
                                        const FollowOptions& options);

// The exit code for an ended job: 0 if it succeeded, else 1.
int JobExitCode(const v1::JobStatus& job);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_FOLLOW_H_
