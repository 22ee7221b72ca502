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

// Sends the file that training.initial_weights names, or the model in the folder that it names, and
// changes the field to "upload:" and the name of the sent file. Does nothing if the job has no
// initial weights. Calls are repeated while the scheduler is away. After an error the spec is
// unchanged.
// Errors: kNotFound, kPermissionDenied  the file cannot be read.
//         kCancelled  a signal came. Else those of the calls.
absl::Status UploadWeights(SchedulerClient& scheduler, v1::JobSpec* spec,
                           const Patience::Options& options = {});

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_UPLOAD_H_
