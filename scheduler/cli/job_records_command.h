// `capstan job delete|label`: the commands that change the records of jobs.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_RECORDS_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_RECORDS_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/command_line/command.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/command.h"

namespace capstan::cli {

// Reads "KEY=VALUE" (set) and "KEY-" (remove) into `request`.
// Errors: kInvalidArgument  a label has neither form; names it. `request` has the earlier labels.
absl::Status AddLabels(const std::vector<std::string>& labels, v1::AnnotateJobRequest& request);

void AddJobRecordsCommands(Command job, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_RECORDS_COMMAND_H_
