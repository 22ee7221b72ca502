// `capstan node list|describe|drain`.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the commands to the group `node`; `line` outlives parsing.
void AddNodeCommands(CLI::App& node, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_COMMAND_H_
