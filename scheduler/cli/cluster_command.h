// `capstan cluster up|run|status|down`.
#ifndef CAPSTAN_SCHEDULER_CLI_CLUSTER_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_CLUSTER_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the commands to the group `cluster`; `line` outlives parsing.
void AddClusterCommands(CLI::App& cluster, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CLUSTER_COMMAND_H_
