// Checkpoint folder: finds, verifies and removes the checkpoints of a job. Each one is a folder
// checkpoint-<id> of parts and a manifest.
//
//   checkpoint-7/table-0-shard-0.part ...   parts, by the servers
//   checkpoint-7/manifest.pb                last, by the scheduler: now it is complete
//
// Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define CAPSTAN_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "proto/checkpoint.pb.h"

namespace capstan {

struct CheckpointEntry {
  CheckpointId id;
  std::string path;
  // OK: the manifest is whole (the parts were not read). kNotFound: there is none: it was never
  // finished. Else: why it cannot be used.
  absl::Status status;
  v1::CheckpointManifest manifest;  // If OK.
};

// All in `folder`, newest first. A folder that is missing holds none. Errors: the disk's.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(Disk& disk, const std::string& folder);

// Reads the checkpoint at `path`, and what its parts rest on in the checkpoints beside it, and
// checks every byte of it. Returns its manifest. Errors: as ReadManifest and ReadPart.
absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(Disk& disk, const std::string& path);

// The highest id of all in `folder`, complete or not; 0: it holds none. Errors: the disk's.
absl::StatusOr<CheckpointId> NewestId(Disk& disk, const std::string& folder);

struct FoundCheckpoint {
  std::string path;
  v1::CheckpointManifest manifest;
  // Newer ones that cannot be used, newest first, each with the reason.
  std::vector<std::string> passed_over;
};

// The newest in `folder` that passes VerifyCheckpoint. It looks only at checkpoints above `floor`,
// and, if `job` is given, only at those of that job.
// Errors: kNotFound  there is none; names those passed over and why. The disk's, of the listing.
absl::StatusOr<FoundCheckpoint> NewestComplete(Disk& disk, const std::string& folder,
                                               const JobId& job = {}, CheckpointId floor = {});

// Removes the checkpoint at `path`; the manifest goes first, so that what is left after a crash is
// not complete. Files that belong to no checkpoint stay, and the folder with them. A missing
// checkpoint counts as removed. Errors: the disk's.
absl::Status RemoveCheckpoint(Disk& disk, const std::string& path);

// Removes all checkpoints in `folder` that are newer than `floor` and older than the newest of
// `staying`, except for those of `staying` and those from the first to the last of a pair of
// `pinned`. Checkpoints up to the floor are not the job's; one that is newer than all of `staying`
// may still be being written. Returns the paths of those removed.
// REQUIRES: `staying` has all that they rest on; it is not empty.
// Errors: the disk's; those already removed stay so.
absl::StatusOr<std::vector<std::string>> RemoveOthers(
    Disk& disk, const std::string& folder, CheckpointId floor,
    absl::Span<const CheckpointId> staying,
    absl::Span<const std::pair<CheckpointId, CheckpointId>> pinned = {});

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_
