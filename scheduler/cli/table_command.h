// `capstan table list|traffic|placement|export`, and operations/table_read.h's `read`.
#ifndef CAPSTAN_SCHEDULER_CLI_TABLE_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_TABLE_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the commands to the group `table`; `line` outlives parsing.
void AddTableCommands(CLI::App& table, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_TABLE_COMMAND_H_
