// `capstan predict` and `capstan evaluate`: run exported models on data.
//
// Both are commands of capstan-worker, which computes models (worker/prediction). This process
// replaces itself by capstan-worker with all arguments, including --help, and calls no scheduler.
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_PREDICTION_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_PREDICTION_COMMAND_H_

#include <CLI/App.hpp>

#include "scheduler/cli/command.h"

namespace capstan::cli {

// `line` outlives parsing.
void AddPredictionCommands(CLI::App& app, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_PREDICTION_COMMAND_H_
