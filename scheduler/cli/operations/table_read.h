// `capstan table read`: a running job's table at one moment: rows by key, or a dense table whole.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_TABLE_READ_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_TABLE_READ_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the command to the group `table`; `line` outlives parsing.
void AddTableRead(CLI::App& table, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_TABLE_READ_H_
