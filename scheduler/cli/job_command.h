// `capstan job submit|list|status|describe|watch|export`, and job_records_command.h's commands.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the commands to the group `job`; `line` outlives parsing.
void AddJobCommands(CLI::App& job, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_COMMAND_H_
