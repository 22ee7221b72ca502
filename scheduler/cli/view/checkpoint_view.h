// Checkpoint view: formats checkpoints as a table for users.
//
// Thread safety: pure functions (times are in the machine's time zone).
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_CHECKPOINT_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_CHECKPOINT_VIEW_H_

#include <string>

#include "scheduler/cli/view/output.pb.h"

namespace capstan::cli {

// Returns one row for each checkpoint, then a line for each damaged one.
std::string CheckpointTable(const CheckpointListOutput& list);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_CHECKPOINT_VIEW_H_
