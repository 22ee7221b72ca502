#include "server/storage/checkpoint_writer.h"

#include <memory>
#include <utility>

#include "common/checkpoint/shard_file.h"
#include "common/status/status_macros.h"

namespace capstan::server {

void CheckpointWriter::Write(const JobId& job, const v1::CheckpointOrder& order,
                             std::vector<CapturedShard> shards, Done done) {
  // The task owns the shards; shared since std::function copies.
  auto owned = std::make_shared<std::vector<CapturedShard>>(std::move(shards));
  runner_.Run([this, job, order, owned, done = std::move(done)] {
    done(WriteParts(job, order, std::move(*owned)));
  });
}

absl::StatusOr<std::vector<v1::CheckpointPart>> CheckpointWriter::WriteParts(
    const JobId& job, const v1::CheckpointOrder& order, std::vector<CapturedShard> shards) {
  CAPSTAN_RETURN_IF_ERROR(disk_->MakeFolder(order.folder()));
  std::vector<v1::CheckpointPart> parts;
  for (CapturedShard& captured : shards) {
    CAPSTAN_ASSIGN_OR_RETURN(v1::CheckpointPart part,
                             WriteShardFile(*disk_, order.folder(), job, captured.shard.key,
                                            captured.shard.elements, *captured.snapshot));
    captured.snapshot.reset();  // Its memory is free as soon as it is on the disk.
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace capstan::server
