// Checkpoint part: one shard of a checkpoint, read as a whole even if its file has only the changes
// since an earlier checkpoint.
//
//   checkpoint-4/table-0-shard-3.part   all rows
//   checkpoint-5/table-0-shard-3.part   what changed since 4
//   checkpoint-6/table-0-shard-3.part   what changed since 5; its manifest names the files of 4, 5
//
// Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_COMMON_CHECKPOINT_CHECKPOINT_PART_H_
#define CAPSTAN_COMMON_CHECKPOINT_CHECKPOINT_PART_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "proto/checkpoint.pb.h"
#include "proto/shard_state.pb.h"

namespace capstan {

inline constexpr absl::string_view kCheckpointPrefix = "checkpoint-";

// "<folder>/checkpoint-7".
std::string CheckpointPath(const std::string& folder, CheckpointId id);

// The lowest id of a checkpoint that this one rests on; its own if every part has all.
CheckpointId RestsOn(const v1::CheckpointManifest& manifest);

// Reads a part of the checkpoint in `folder`, as its manifest names it, and the files that it rests
// on, each byte of them, and puts them together.
// Errors: kDataLoss  as ReadShardFile and ApplyRowDelta, of any of the files; names it. The disk's.
absl::StatusOr<v1::ShardSnapshot> ReadPart(Disk& disk, const std::string& folder, const JobId& job,
                                           const v1::CheckpointPart& part);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_CHECKPOINT_PART_H_
