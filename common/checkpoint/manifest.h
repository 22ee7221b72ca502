// Manifest: the file that makes a folder of parts a complete checkpoint. It is written last and
// renamed into place, so a folder has the whole manifest or none.
//
//   manifest.pb:  "CAPCKPT1", size of the message (8 bytes), CheckpointManifest, CRC-32C of all of
//                 it (4 bytes, as MaskCrc); numbers are little-endian
//
// Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_COMMON_CHECKPOINT_MANIFEST_H_
#define CAPSTAN_COMMON_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "proto/checkpoint.pb.h"

namespace capstan {

inline constexpr absl::string_view kManifestFile = "manifest.pb";
inline constexpr int32_t kManifestFormat = 2;
inline constexpr int64_t kManifestBytesMax = 256 << 20;

// Checks that the manifest has a known format, a job, a checkpoint id, and parts that cut every
// table into ranges without gap or overlap, each shard once, ordered by (table, shard). The parts
// lie in files of the folder itself. These rest on files of earlier checkpoints, in their order.
// IsFileName accepts the names of all of them.
// Errors: kInvalidArgument  names the field, its value and what was expected.
absl::Status CheckManifest(const v1::CheckpointManifest& manifest);

// Publishes the checkpoint in `folder`, durably. Its parts are on the disk already.
// Errors: as CheckManifest. The disk's.
absl::Status WriteManifest(Disk& disk, const std::string& folder,
                           const v1::CheckpointManifest& manifest);

// Errors: kNotFound  the folder or its manifest is missing: it never was a complete checkpoint.
//         kDataLoss  a checksum or format is wrong, or CheckManifest says no; names the file.
//         The disk's.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(Disk& disk, const std::string& folder);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_MANIFEST_H_
