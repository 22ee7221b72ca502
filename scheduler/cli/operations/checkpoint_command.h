// The commands `capstan checkpoint list|verify|save|restore` and `capstan job recover`.
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

void AddCheckpointCommands(CLI::App& checkpoint, CommandLine& line);
// `capstan job recover`: a job that the scheduler does not know, from a checkpoint.
void AddRecoverCommand(CLI::App& job, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_COMMAND_H_
