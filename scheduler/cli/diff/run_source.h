// RunSource: finds and reads the record of a run that the user names.
//
//   lenet-1           a job of the cluster, whose output folder this machine sees
//   ./runs/lenet-1    a job's output folder, or a copy of it: has a '/' or is "." or ".."
//   ./updates.csv     the record alone; job.json beside it is read if there is one
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_DIFF_RUN_SOURCE_H_
#define CAPSTAN_SCHEDULER_CLI_DIFF_RUN_SOURCE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/report/update_log.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/diff/diff_view.h"

namespace capstan::cli {

struct RecordedRun {
  RunOrigin origin;
  LoggedUpdates updates;
};

// Asks the scheduler for a job.
using GetJob = std::function<absl::StatusOr<v1::JobStatus>(const std::string& job)>;

// Errors: those of `get_job` and ReadUpdateLog.
//         kFailedPrecondition  the job does not record its updates, or has none yet, or its folder
//                              is on another host; says what to do.
//         kInvalidArgument     job.json is damaged.
absl::StatusOr<RecordedRun> ReadRun(const std::string& name, const GetJob& get_job);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_DIFF_RUN_SOURCE_H_
