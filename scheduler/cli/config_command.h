// `capstan config show` and `capstan version`.
#ifndef CAPSTAN_SCHEDULER_CLI_CONFIG_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_CONFIG_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the commands to the group `config`; `line` outlives parsing.
void AddConfigCommands(CLI::App& config, CommandLine& line);

// Adds `version` to the top level.
void AddVersionCommand(CLI::App& app, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CONFIG_COMMAND_H_
