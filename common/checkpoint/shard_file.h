// Shard file: one shard's part of a checkpoint, a ShardSnapshot in blocks that each carry a CRC.
//
//   header    magic, format, key, range, version, position, sizes, job; CRC-32C of it
//   blocks    1 MiB each, the last one what is left; each followed by the CRC-32C of its number and
//             bytes, so that blocks in a wrong order are found as well
//   footer    magic, size of the file; CRC-32C of it
//
// Numbers are little-endian, CRCs as MaskCrc. Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_COMMON_CHECKPOINT_SHARD_FILE_H_
#define CAPSTAN_COMMON_CHECKPOINT_SHARD_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "proto/checkpoint_part.pb.h"
#include "proto/shard_state.pb.h"

namespace capstan {

inline constexpr int64_t kShardFileBlockBytes = 1 << 20;
// A shard has at most 4 MiB of values, the version before it and two state slots of the same size.
inline constexpr int64_t kShardFileBytesMax = 64 << 20;

// "table-0-shard-12.part".
std::string ShardFileName(const ShardKey& key);

// Writes the part of a shard into `folder`, which exists, durably: there is the whole file under
// its name or none. The part that is returned is what the manifest says of it.
// Errors: kInvalidArgument  it would be larger than kShardFileBytesMax. The disk's.
absl::StatusOr<v1::CheckpointPart> WriteShardFile(Disk& disk, const std::string& folder,
                                                  const JobId& job, const ShardKey& key,
                                                  const Range& elements,
                                                  const v1::ShardSnapshot& snapshot);

// Reads the part that a manifest names, of the job that was saved, and checks every byte of it.
// Errors: kDataLoss  a checksum, format or field is wrong, or the file is missing; names the file,
//         the offset, what is there and what was expected. The disk's.
absl::StatusOr<v1::ShardSnapshot> ReadShardFile(Disk& disk, const std::string& folder,
                                                const JobId& job, const v1::CheckpointPart& part);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_SHARD_FILE_H_
