// `capstan diff`: names the first update at which two runs of a job differ.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_DIFF_DIFF_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_DIFF_DIFF_COMMAND_H_

#include <CLI/App.hpp>

#include "scheduler/cli/command.h"

namespace capstan::cli {

// `line` outlives parsing.
void AddDiffCommand(CLI::App& app, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_DIFF_DIFF_COMMAND_H_
