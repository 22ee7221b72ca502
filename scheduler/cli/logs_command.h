// `capstan job logs`.
#ifndef CAPSTAN_SCHEDULER_CLI_LOGS_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_LOGS_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the command to the group `job`; `line` outlives parsing.
void AddLogsCommand(CLI::App& job, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_LOGS_COMMAND_H_
