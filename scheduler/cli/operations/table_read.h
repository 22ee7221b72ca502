// `capstan table read`: reads rows of a running job's sparse table, or a whole dense table, all at
// one moment.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_TABLE_READ_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_TABLE_READ_H_

#include "common/command_line/command.h"
#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the command to the group `table`; `line` outlives parsing.
void AddTableRead(Command table, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_TABLE_READ_H_
