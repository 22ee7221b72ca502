// Checkpoints as files: what is in a folder, whether it is whole, and the job that goes on from it.
//
// Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_FILES_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/operations/spec_changes.h"
#include "scheduler/cli/view/output.pb.h"

namespace capstan::cli {

// kManifests: parts are not read. kEveryByte: all of each complete checkpoint is.
enum class Depth { kManifests, kEveryByte };

// The checkpoints in `folder`, or the one that it is, newest first.
// Errors: kNotFound  no such folder. The disk's.
absl::StatusOr<CheckpointListOutput> DescribeCheckpoints(Disk& disk, const std::string& folder,
                                                         Depth depth);

struct RestoreSource {
  std::string path;  // Absolute, of one checkpoint; every byte of it was read.
  v1::CheckpointManifest manifest;
  std::vector<std::string> passed_over;  // Newer ones, each with the reason.
};

// The checkpoint that `folder` is, or the newest whole one in it.
// Errors: kNotFound  there is none. kDataLoss  the one that it is is damaged; names the newest
//         whole one beside it, if any. The disk's.
absl::StatusOr<RestoreSource> FindRestoreSource(Disk& disk, const std::string& folder);

// The job that goes on from a checkpoint, with what is to be other than it was. Initial weights are
// left out: its parameters are the checkpoint's.
// Errors: those of ChangedJob.
absl::StatusOr<v1::JobSpec> RestoredJob(const v1::CheckpointManifest& manifest,
                                        const SpecChanges& changes);

// Likewise the job that goes on where `job` ended.
absl::StatusOr<v1::JobSpec> ResumedJob(const v1::JobStatus& job, const SpecChanges& changes);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_FILES_H_
