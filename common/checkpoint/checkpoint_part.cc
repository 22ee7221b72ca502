#include "common/checkpoint/checkpoint_part.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/row_delta.h"
#include "common/checkpoint/shard_file.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

// Returns the folder of another checkpoint of the same job.
std::string Beside(const std::string& folder, uint64_t id) {
  const size_t slash = folder.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : folder.substr(0, slash);
  return CheckpointPath(parent, CheckpointId(id));
}

// Returns the part of the base as the manifest of its own checkpoint names it.
v1::CheckpointPart PartOf(const v1::PartBase& base, uint64_t base_id,
                          const v1::CheckpointPart& part) {
  v1::CheckpointPart named = part;
  named.clear_bases();
  named.set_version(base.version());
  named.set_file(base.file());
  named.set_bytes(base.bytes());
  named.set_crc32c(base.crc32c());
  named.set_base_id(base_id);
  return named;
}

}  // namespace

std::string CheckpointPath(const std::string& folder, CheckpointId id) {
  return absl::StrCat(folder, "/", kCheckpointPrefix, id.value());
}

CheckpointId RestsOn(const v1::CheckpointManifest& manifest) {
  uint64_t lowest = manifest.checkpoint_id();
  for (const v1::CheckpointPart& part : manifest.parts()) {
    if (part.bases_size() > 0) lowest = std::min(lowest, part.bases(0).checkpoint_id());
  }
  return CheckpointId(lowest);
}

absl::StatusOr<v1::ShardSnapshot> ReadPart(Disk& disk, const std::string& folder, const JobId& job,
                                           const v1::CheckpointPart& part) {
  v1::ShardSnapshot snapshot;
  uint64_t below = 0;
  for (const v1::PartBase& base : part.bases()) {
    const std::string beside = Beside(folder, base.checkpoint_id());
    CAPSTAN_ASSIGN_OR_RETURN(v1::ShardSnapshot read,
                             ReadShardFile(disk, beside, job, PartOf(base, below, part)));
    if (below == 0) {
      snapshot = std::move(read);
    } else {
      CAPSTAN_RETURN_IF_ERROR(Annotate(ApplyRowDelta(std::move(read), &snapshot),
                                       absl::StrCat(beside, "/", base.file())));
    }
    below = base.checkpoint_id();
  }
  CAPSTAN_ASSIGN_OR_RETURN(v1::ShardSnapshot last, ReadShardFile(disk, folder, job, part));
  if (below == 0) return last;
  CAPSTAN_RETURN_IF_ERROR(
      Annotate(ApplyRowDelta(std::move(last), &snapshot), absl::StrCat(folder, "/", part.file())));
  return snapshot;
}

}  // namespace capstan
