// The adoption of a job of another cluster, whose scheduler has lost its store, from the logs of
// its shards. Used by SchedulerCore::Adopt.
//
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_ADOPTION_H_
#define CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_ADOPTION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/nodes/membership.h"
#include "scheduler/core/placement/job_placer.h"
#include "scheduler/core/placement/job_table.h"

namespace capstan::scheduler {

// The shell's knowledge of a loaded job of another cluster.
struct Adoption {
  JobId job;
  std::string cluster;        // The cluster from which the job comes.
  absl::Duration record_age;  // Age of the job's record.
  // The job's shards in the logs with which servers registered. Dead servers are ignored.
  std::map<NodeId, std::vector<StoredShard>> stored;
  CheckpointId checkpoint_floor;  // The highest id in the job's checkpoint folder.
  bool only_check = false;        // Only checks if the job could be adopted, then unloads it.
};

// Gives the live servers of this cluster to the loaded job, which continues from their logs.
// Errors: kFailedPrecondition  it does not run, or has no log; its shards are not all in logs here;
//                              no worker could run its tasks. Says what is missing.
absl::Status TakeUpRun(const Adoption& from, const Membership& membership, const WorkerSlots& slots,
                       Instant now, IncarnationCounter& incarnations, JobEntry& entry,
                       Events& events);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_ADOPTION_H_
