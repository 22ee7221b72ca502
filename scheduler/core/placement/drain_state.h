// How far a node is drained: whether its process may be stopped, and what that waits for.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CORE_PLACEMENT_DRAIN_STATE_H_
#define CAPSTAN_SCHEDULER_CORE_PLACEMENT_DRAIN_STATE_H_

#include "common/types/ids.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/nodes/membership.h"
#include "scheduler/core/nodes/worker_slots.h"
#include "scheduler/core/placement/job_table.h"

namespace capstan::scheduler {

// True if the node is dead, or gets nothing new and has no task and no shard of a running job; and
// no running job waits for a log on its disk.
bool MayStop(const NodeId& node, const Membership& membership, const WorkerSlots& slots,
             const JobTable& jobs);

// The answer to a DrainNode call, without its ticket.
DrainReply DrainStateOf(const NodeId& node, const Membership& membership, const WorkerSlots& slots,
                        const JobTable& jobs);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_DRAIN_STATE_H_
