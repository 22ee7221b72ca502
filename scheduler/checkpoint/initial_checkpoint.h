// Initial checkpoint: the initial weights of a job, stored as the checkpoint of a job that has not
// trained yet. Servers, replicas and logs restore it like any other checkpoint, so no other part of
// the system has to know about initial weights.
//
// Thread safety: functions of their arguments and of the disk.
#ifndef CAPSTAN_SCHEDULER_CHECKPOINT_INITIAL_CHECKPOINT_H_
#define CAPSTAN_SCHEDULER_CHECKPOINT_INITIAL_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/storage/disk.h"
#include "scheduler/admission/admission.h"

namespace capstan::scheduler {

// Returns the folder of the job's initial checkpoint; no other job has the same folder.
// REQUIRES: the job has its unique id.
std::string InitialCheckpointPath(const std::string& data_folder, const AdmittedJob& job);

// Writes `values` (by table, all elements of each) as a complete checkpoint at `folder`, which
// InitialCheckpointPath returned. Each shard has version 0 and no optimizer state: servers
// initialize that state as for a new job.
// REQUIRES: the job has its id; its tables are dense.
// Errors: those of the disk.
absl::Status WriteInitialCheckpoint(Disk& disk, const std::string& folder, const AdmittedJob& job,
                                    const std::vector<std::vector<float>>& values, int64_t unix_ms);

// Removes the checkpoint and the folder around it. A missing checkpoint is no error.
// Errors: those of the disk.
absl::Status RemoveInitialCheckpoint(Disk& disk, const std::string& folder);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CHECKPOINT_INITIAL_CHECKPOINT_H_
