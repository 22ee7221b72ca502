// UploadWeights: sends the initial weights of a job to the scheduler, whose host need not have
// them.
//
// Thread safety: main thread.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_UPLOAD_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_UPLOAD_H_

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/client/patience.h"

namespace capstan::cli {

// Sends the file that training.initial_weights names, or the model of the folder that it names, and
// lets the field name what was sent. Does nothing if the job has no initial weights. Calls are
// repeated while the scheduler is away.
// Errors: kNotFound, kPermissionDenied  the file cannot be read; the spec is unchanged, as below.
//         kCancelled  a signal came. Else those of the calls.
absl::Status UploadWeights(SchedulerClient& scheduler, v1::JobSpec* spec,
                           const Patience::Options& options = {});

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_UPLOAD_H_
