// Small checkpoints for tests, whose content follows from their number.
//
// Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_COMMON_CHECKPOINT_TESTING_TEST_CHECKPOINT_H_
#define CAPSTAN_COMMON_CHECKPOINT_TESTING_TEST_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "proto/checkpoint.pb.h"
#include "proto/shard_state.pb.h"

namespace capstan::testing {

// A shard of `elements` floats at `version`; all bytes follow from the arguments.
v1::ShardSnapshot MakeSnapshot(uint64_t seed, int64_t elements, int64_t version);

// Job "job-1" has table 0 in two shards of 40 and 24 elements, and table 1 in one of 8. A
// checkpoint's shards are made with its id as seed and version.
inline constexpr int kTestShards = 3;
v1::CheckpointManifest MakeManifest(uint64_t id);  // The files of its parts need not exist.

// Writes the parts and then the manifest into <folder>/checkpoint-<id>.
absl::Status WriteTestCheckpoint(Disk& disk, const std::string& folder, uint64_t id);

// Whether the parts that the manifest names hold what WriteTestCheckpoint wrote.
absl::Status CheckTestCheckpoint(Disk& disk, const std::string& path,
                                 const v1::CheckpointManifest& manifest);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_CHECKPOINT_TESTING_TEST_CHECKPOINT_H_
