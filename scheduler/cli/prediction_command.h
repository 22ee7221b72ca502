// `capstan predict` and `capstan evaluate`: exported models on data.
//
// They are commands of capstan-worker, which computes models (worker/prediction): this process
// replaces itself by it, with all arguments, --help among them. No scheduler is called.
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
