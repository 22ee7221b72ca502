// Checkpoints as files: what is in a folder, whether it is whole, and the job that goes on from it.
//
// Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_FILES_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_FILES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
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

// The job that goes on from a checkpoint, on another number of servers or workers if they are
// given, with its files in `output` if that is not empty.
// Errors: kInvalidArgument  a line for each field that cannot be.
absl::StatusOr<v1::JobSpec> RestoredJob(const v1::CheckpointManifest& manifest,
                                        std::optional<int> servers, std::optional<int> workers,
                                        const std::string& output = "");

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_FILES_H_
