// Shard file: one shard's part of a checkpoint, a ShardSnapshot in blocks that each carry a CRC.
//
//   header    magic, format, key, range, version, position, size of a block, job; CRC-32C of it
//   blocks    1 MiB each, the last one what is left; each followed by the CRC-32C of its number and
//             bytes, so that blocks in a wrong order are found as well
//   footer    magic, size of the file and of what the blocks hold; CRC-32C of it
//
// The rows of a bucket may be written in pieces: then the message in the blocks has them in pieces,
// and a reader joins them.
// Numbers are little-endian, CRCs as MaskCrc. Thread safety: pure functions but for the disk; a
// writer is thread-compatible.
#ifndef CAPSTAN_COMMON_CHECKPOINT_SHARD_FILE_H_
#define CAPSTAN_COMMON_CHECKPOINT_SHARD_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/crc32c.h"
#include "common/storage/disk.h"
#include "common/storage/write_durably.h"
#include "common/types/ids.h"
#include "proto/checkpoint_part.pb.h"
#include "proto/shard_state.pb.h"

namespace capstan {

inline constexpr int64_t kShardFileBlockBytes = 1 << 20;
// A bucket's snapshot is at most 1 GiB (server/store/sparse); protobuf reads less than 2 GiB.
inline constexpr int64_t kShardFileBytesMax = int64_t{3} << 29;

inline constexpr absl::string_view kPartSuffix = ".part";
// "table-0-shard-12.part".
std::string ShardFileName(const ShardKey& key);

// Writes the part of a shard piece by piece, durably: the whole file is there under its name once
// Finish has returned OK, else nothing of it.
class ShardFileWriter {
 public:
  // Into `folder`, which exists. `snapshot` may lack rows, which Add brings. The disk outlives it.
  // Errors, here and below: kInvalidArgument  the file would be larger than `bytes_max`, or the
  // job's name is too long. The disk's.
  static absl::StatusOr<ShardFileWriter> Begin(Disk* disk, const std::string& folder,
                                               const JobId& job, const ShardKey& key,
                                               const Range& elements,
                                               const v1::ShardSnapshot& snapshot,
                                               int64_t bytes_max = kShardFileBytesMax);
  absl::Status Add(v1::ShardSnapshot piece);  // One of ShardSnapshot.pieces.
  // Returns the file's entry in the manifest. Call once.
  absl::StatusOr<v1::CheckpointPart> Finish();

 private:
  ShardFileWriter(DurableDiskFile file, std::string path, int64_t bytes_max)
      : file_(std::move(file)), path_(std::move(path)), bytes_max_(bytes_max) {}

  absl::Status AddToBlocks(absl::string_view bytes);
  absl::Status WriteBlock();
  absl::Status Write(absl::string_view bytes);  // Counts them.

  DurableDiskFile file_;
  std::string path_;
  int64_t bytes_max_;
  v1::CheckpointPart part_;  // But for size and checksum.
  std::string block_;        // The one that is being filled.
  int64_t blocks_ = 0;
  int64_t payload_bytes_ = 0;
  int64_t file_bytes_ = 0;
  Crc32c crc_;
};

// Writes the part of a shard from a snapshot that has all rows, in one call.
absl::StatusOr<v1::CheckpointPart> WriteShardFile(Disk& disk, const std::string& folder,
                                                  const JobId& job, const ShardKey& key,
                                                  const Range& elements,
                                                  const v1::ShardSnapshot& snapshot);

// Checks the header and the footer of the part that a manifest names: whether it is there, is of
// that job, shard, range and version, and has as many bytes. The blocks between are not read.
// Errors: as ReadShardFile.
absl::Status ProbeShardFile(Disk& disk, const std::string& folder, const JobId& job,
                            const v1::CheckpointPart& part);

// Reads the part that a manifest names, of the job that was saved, and checks every byte of it.
// Errors: kDataLoss  a checksum, format or field is wrong, or the file is missing; names the file,
//         the offset, what is there and what was expected. The disk's.
absl::StatusOr<v1::ShardSnapshot> ReadShardFile(Disk& disk, const std::string& folder,
                                                const JobId& job, const v1::CheckpointPart& part);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_SHARD_FILE_H_
