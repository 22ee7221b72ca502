// Node drain: drains a daemon. The scheduler gives it no new shards or tasks, and moves its present
// ones to other daemons.
//
// Thread safety: main thread; an Interrupts object must exist.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_DRAIN_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_DRAIN_H_

#include <string>

#include "scheduler/cli/client/client.h"
#include "scheduler/cli/settings/settings.h"

namespace capstan::cli {

// Drains the node and waits until it is safe to stop. Prints the number of remaining shards and
// tasks at each change. Returns the exit code: 0 if it is safe, 130 or 143 after a signal (the
// drain goes on), else the code of the scheduler's error.
int DrainUntilSafe(SchedulerClient& scheduler, const std::string& node_id, OutputFormat format);

// Cancels the drain of a node, which is then in use again. Returns the exit code.
int CancelDrain(SchedulerClient& scheduler, const std::string& node_id, OutputFormat format);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_NODE_DRAIN_H_
