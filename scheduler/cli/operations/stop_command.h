// The command `capstan job stop`. Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_STOP_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_STOP_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

void AddStopCommand(CLI::App& job, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_STOP_COMMAND_H_
