// Checkpoint files: lists and verifies the checkpoints in a folder, and makes the jobs that go on
// from them.
//
// Thread safety: functions of their arguments and of the disk.
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

// kManifests: reads no parts. kEveryByte: reads all bytes of each complete checkpoint.
enum class Depth { kManifests, kEveryByte };

// Describes the checkpoints in `folder`, newest first, or the one checkpoint that `folder` is.
// Errors: kNotFound  no such folder. Those of the disk.
absl::StatusOr<CheckpointListOutput> DescribeCheckpoints(Disk& disk, const std::string& folder,
                                                         Depth depth);

struct RestoreSource {
  std::string path;  // Absolute path of the checkpoint, whose bytes were all verified.
  v1::CheckpointManifest manifest;
  std::vector<std::string> passed_over;  // Newer checkpoints, each with the reason.
};

// Returns the checkpoint that `folder` is, or the newest intact one in it.
// Errors: kNotFound  there is none. kDataLoss  `folder` is a damaged checkpoint; names the newest
//         intact one beside it, if any. Those of the disk.
absl::StatusOr<RestoreSource> FindRestoreSource(Disk& disk, const std::string& folder);

// Returns the job that goes on from a checkpoint, with `changes`. It has no initial weights,
// because its parameters come from the checkpoint.
// Errors: those of ChangedJob.
absl::StatusOr<v1::JobSpec> RestoredJob(const v1::CheckpointManifest& manifest,
                                        const SpecChanges& changes);

// Same as RestoredJob(), for the job that goes on where `job` ended.
absl::StatusOr<v1::JobSpec> ResumedJob(const v1::JobStatus& job, const SpecChanges& changes);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_FILES_H_
