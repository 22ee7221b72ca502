// Commands that submit a job which goes on from a checkpoint: `capstan checkpoint restore`,
// `capstan job resume` and `capstan job recover`. Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_RESTORE_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_RESTORE_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

void AddRestoreCommand(CLI::App& checkpoint, CommandLine& line);
// `resume` continues an ended job from its newest checkpoint, which the scheduler finds.
void AddResumeCommand(CLI::App& job, CommandLine& line);
// `recover` continues a job that the scheduler does not know, from its logs or from a checkpoint.
void AddRecoverCommand(CLI::App& job, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_RESTORE_COMMAND_H_
