#include "server/checkpoint/checkpoint_writer.h"

#include <memory>
#include <optional>
#include <utility>

#include "common/checkpoint/shard_file.h"
#include "common/status/status_macros.h"

namespace capstan::server {

void CheckpointWriter::Write(const JobId& job, const v1::CheckpointOrder& order,
                             std::vector<CapturedShard> shards, Done done) {
  // The task owns the shards through a shared pointer, because std::function copies.
  auto owned = std::make_shared<std::vector<CapturedShard>>(std::move(shards));
  runner_.Run([this, job, order, owned, done = std::move(done)] {
    done(WriteParts(job, order, std::move(*owned)));
  });
}

absl::StatusOr<std::vector<v1::CheckpointPart>> CheckpointWriter::WriteParts(
    const JobId& job, const v1::CheckpointOrder& order, std::vector<CapturedShard> shards) {
  CAPSTAN_ASSIGN_OR_RETURN(Disk * disk, disk_of_(order.folder()));
  CAPSTAN_RETURN_IF_ERROR(disk->MakeFolder(order.folder()));
  std::vector<v1::CheckpointPart> parts;
  for (CapturedShard& captured : shards) {
    CAPSTAN_ASSIGN_OR_RETURN(v1::CheckpointPart part,
                             WritePart(disk, job, order.folder(), captured));
    captured = {};  // Frees the shard's memory as soon as it is on the disk.
    parts.push_back(std::move(part));
  }
  return parts;
}

absl::StatusOr<v1::CheckpointPart> CheckpointWriter::WritePart(Disk* disk, const JobId& job,
                                                               const std::string& folder,
                                                               const CapturedShard& captured) {
  CAPSTAN_ASSIGN_OR_RETURN(ShardFileWriter file,
                           ShardFileWriter::Begin(disk, folder, job, captured.shard.key,
                                                  captured.shard.elements, *captured.snapshot));
  while (captured.rows != nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(std::optional<v1::ShardSnapshot> piece, captured.rows->Next());
    if (!piece.has_value()) break;
    CAPSTAN_RETURN_IF_ERROR(file.Add(*std::move(piece)));
  }
  return file.Finish();
}

}  // namespace capstan::server
