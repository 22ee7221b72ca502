// The commands `capstan checkpoint list|verify|save`, and restore_command.h's `restore`.
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

void AddCheckpointCommands(CLI::App& checkpoint, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_COMMAND_H_
