// Initial checkpoint: the weights that a job begins with, as the checkpoint of a job that has not
// trained. Servers, replicas and logs take it as they take any other one that a job goes on from,
// so nothing else of the system knows that a job may begin with weights of its own.
//
// Thread safety: functions of their arguments and of the disk.
#ifndef CAPSTAN_SCHEDULER_INITIAL_CHECKPOINT_H_
#define CAPSTAN_SCHEDULER_INITIAL_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/storage/disk.h"
#include "scheduler/admission.h"

namespace capstan::scheduler {

// The folder of a job's initial checkpoint; no other job has the same. REQUIRES: it has its
// unique id.
std::string InitialCheckpointPath(const std::string& data_folder, const AdmittedJob& job);

// Writes `values` (by table, all elements of each) as a complete checkpoint at `folder`, one that
// InitialCheckpointPath gave: version 0 of each shard, without the optimizer's state, which begins
// as always.
// REQUIRES: the job has its id; its tables are dense.
// Errors: the disk's.
absl::Status WriteInitialCheckpoint(Disk& disk, const std::string& folder, const AdmittedJob& job,
                                    const std::vector<std::vector<float>>& values, int64_t unix_ms);

// Removes it, and the folder that it is in. One that is missing is removed. Errors: the disk's.
absl::Status RemoveInitialCheckpoint(Disk& disk, const std::string& folder);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_INITIAL_CHECKPOINT_H_
