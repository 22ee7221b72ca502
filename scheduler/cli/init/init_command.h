// `capstan init`: writes a commented job file for the data that the user names.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_INIT_INIT_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_INIT_INIT_COMMAND_H_

#include <CLI/App.hpp>

#include "scheduler/cli/command.h"

namespace capstan::cli {

// `line` outlives parsing.
void AddInitCommand(CLI::App& app, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_INIT_INIT_COMMAND_H_
