// `capstan job delete|label`: what is remembered of jobs.
//
// Thread safety: as command.h.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_RECORDS_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_RECORDS_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/command.h"

namespace capstan::cli {

// Reads "KEY=VALUE" (set) and "KEY-" (remove) into `request`.
// Errors: kInvalidArgument  neither of the two; names it. `request` then has those before it.
absl::Status AddLabels(const std::vector<std::string>& labels, v1::AnnotateJobRequest& request);

void AddJobRecordsCommands(CLI::App& job, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_RECORDS_COMMAND_H_
