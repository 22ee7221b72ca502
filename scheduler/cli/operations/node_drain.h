// Draining a daemon: nothing new is given to it, what it has moves elsewhere.
//
// Thread safety: main thread; an Interrupts object must exist.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_DRAIN_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_DRAIN_H_

#include <string>

#include "scheduler/cli/client.h"
#include "scheduler/cli/settings.h"

namespace capstan::cli {

// Drains the node and waits until it is safe to stop, printing what is still on it whenever that
// changes. Returns the exit code: 0 it is safe, 130 or 143 after a signal (it goes on being
// drained), else that of the scheduler's error.
int DrainUntilSafe(SchedulerClient& scheduler, const std::string& node_id, OutputFormat format);

// Takes a drained node into use again. Returns the exit code.
int CancelDrain(SchedulerClient& scheduler, const std::string& node_id, OutputFormat format);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_DRAIN_H_
