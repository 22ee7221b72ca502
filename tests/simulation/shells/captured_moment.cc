#include "tests/simulation/shells/captured_moment.h"

#include "absl/strings/str_cat.h"
#include "common/checkpoint/shard_file.h"

namespace capstan::sim {
namespace {

std::string NumbersOf(v1::ShardSnapshot snapshot) {
  snapshot.clear_state();
  return snapshot.SerializeAsString();
}

}  // namespace

void CapturedMoment::Write(const JobId& job, const v1::CheckpointOrder& order,
                           std::vector<server::CapturedShard> shards, Done done) {
  // Shared by the callback's copies.
  auto copies = std::make_shared<std::vector<server::HeldCopy>>();
  if (const auto held = held_(job)) *copies = held->Copies();
  writer_->Write(job, order, std::move(shards),
                 [this, job, folder = order.folder(), copies, done = std::move(done)](
                     const absl::StatusOr<std::vector<v1::CheckpointPart>>& parts) {
                   if (parts.ok()) {
                     for (const auto& part : *parts) Check(folder, job, part, *copies);
                   }
                   done(parts);
                 });
}

void CapturedMoment::Check(const std::string& folder, const JobId& job,
                           const v1::CheckpointPart& part,
                           const std::vector<server::HeldCopy>& copies) {
  if (part.base_id() != 0) return;
  const auto read = ReadShardFile(world_->shared_disk, folder, job, part);
  if (!read.ok()) return;  // The disk has its faults.
  for (const server::HeldCopy& copy : copies) {
    if (copy.shard != ShardKey{TableId(part.table()), ShardId(part.shard())}) continue;
    ++world_->reached[Reached::kPartCompared];
    if (NumbersOf(*read) == NumbersOf(copy.snapshot) || !world_->failure.empty()) continue;
    world_->failure = absl::StrCat("captured moment: ", folder, "/", part.file(), ", version ",
                                   part.version(), ", is not what the server held then");
  }
}

}  // namespace capstan::sim
