#include "common/checkpoint/testing/test_checkpoint.h"

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/status/status_macros.h"

namespace capstan::testing {
namespace {

std::string Bytes(uint64_t seed, int64_t elements) {
  std::string bytes;
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (int64_t i = 0; i < elements * 4; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    bytes.push_back(static_cast<char>(state >> 56));
  }
  return bytes;
}

v1::ShardSnapshot SnapshotOf(const v1::CheckpointPart& part, uint64_t id) {
  return MakeSnapshot(id * 100 + static_cast<uint64_t>(part.table() * 10 + part.shard()),
                      part.element_end() - part.element_begin(), static_cast<int64_t>(id));
}

}  // namespace

v1::ShardSnapshot MakeSnapshot(uint64_t seed, int64_t elements, int64_t version) {
  v1::ShardSnapshot snapshot;
  snapshot.set_position(version + 3);
  snapshot.set_elements(elements);
  snapshot.set_values(Bytes(seed, elements));
  snapshot.add_optimizer_state(Bytes(seed + 1, elements));
  v1::ShardState& state = *snapshot.mutable_state();
  state.set_version(version);
  v1::PushMarks& marks = *state.add_push_marks();
  marks.set_incarnation(seed + 7);
  marks.set_low_water(5);
  marks.add_applied(9);
  return snapshot;
}

v1::CheckpointManifest MakeManifest(uint64_t id) {
  v1::CheckpointManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_job_id("job-1");
  manifest.set_checkpoint_id(id);
  manifest.set_iteration(static_cast<int64_t>(id));
  manifest.set_saved_unix_ms(static_cast<int64_t>(1'700'000'000'000 + id * 1000));
  for (const int64_t elements : {64, 8}) {
    v1::TableSpec& table = *manifest.add_tables();
    table.set_table(manifest.tables_size() - 1);
    table.set_name(manifest.tables_size() == 1 ? "parameters" : "statistics");
    table.set_elements(elements);
  }
  const struct {
    int table, shard;
    int64_t begin, end;
  } shards[kTestShards] = {{0, 0, 0, 40}, {0, 1, 40, 64}, {1, 0, 0, 8}};
  for (const auto& shard : shards) {
    v1::CheckpointPart& part = *manifest.add_parts();
    part.set_table(shard.table);
    part.set_shard(shard.shard);
    part.set_element_begin(shard.begin);
    part.set_element_end(shard.end);
    part.set_version(static_cast<int64_t>(id));
    part.set_file(ShardFileName({TableId(shard.table), ShardId(shard.shard)}));
    part.set_bytes(1);
  }
  return manifest;
}

absl::Status WriteTestCheckpoint(Disk& disk, const std::string& folder, uint64_t id) {
  const std::string path = absl::StrCat(folder, "/checkpoint-", id);
  CAPSTAN_RETURN_IF_ERROR(disk.MakeFolder(path));
  v1::CheckpointManifest manifest = MakeManifest(id);
  for (v1::CheckpointPart& part : *manifest.mutable_parts()) {
    CAPSTAN_ASSIGN_OR_RETURN(
        part, WriteShardFile(disk, path, manifest.job_id(),
                             {TableId(part.table()), ShardId(part.shard())},
                             {part.element_begin(), part.element_end()}, SnapshotOf(part, id)));
  }
  return WriteManifest(disk, path, manifest);
}

absl::Status CheckTestCheckpoint(Disk& disk, const std::string& path,
                                 const v1::CheckpointManifest& manifest) {
  if (manifest.parts_size() != kTestShards) {
    return absl::InternalError(absl::StrCat(path, " has ", manifest.parts_size(), " parts"));
  }
  for (const v1::CheckpointPart& part : manifest.parts()) {
    CAPSTAN_ASSIGN_OR_RETURN(const v1::ShardSnapshot snapshot,
                             ReadShardFile(disk, path, manifest.job_id(), part));
    const v1::ShardSnapshot expected = SnapshotOf(part, manifest.checkpoint_id());
    if (snapshot.DebugString() != expected.DebugString()) {
      return absl::InternalError(absl::StrCat(part.file(), " holds something else"));
    }
  }
  return absl::OkStatus();
}

}  // namespace capstan::testing
