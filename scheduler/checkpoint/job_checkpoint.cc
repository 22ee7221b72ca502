#include "scheduler/checkpoint/job_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "scheduler/checkpoint/restore_check.h"
#include "scheduler/codec/shared_codec.h"
#include "scheduler/codec/status_codec.h"
#include "scheduler/store/state_codec.h"

namespace capstan::scheduler {
namespace {

// Adds to each incremental part of `manifest` the files that it rests on.
absl::Status AddBases(const v1::CheckpointManifest& base, v1::CheckpointManifest& manifest) {
  std::map<std::pair<int32_t, int32_t>, const v1::CheckpointPart*> by_shard;
  for (const v1::CheckpointPart& part : base.parts())
    by_shard[{part.table(), part.shard()}] = &part;
  for (v1::CheckpointPart& part : *manifest.mutable_parts()) {
    if (part.base_id() == 0) continue;
    const auto found = by_shard.find({part.table(), part.shard()});
    if (found == by_shard.end() || part.base_id() != base.checkpoint_id()) {
      return absl::DataLossError(absl::StrCat("table ", part.table(), " shard ", part.shard(),
                                              " rests on checkpoint ", part.base_id(),
                                              ", which has no such part"));
    }
    *part.mutable_bases() = found->second->bases();
    v1::PartBase& last = *part.add_bases();
    last.set_checkpoint_id(part.base_id());
    last.set_version(found->second->version());
    last.set_file(found->second->file());
    last.set_bytes(found->second->bytes());
    last.set_crc32c(found->second->crc32c());
  }
  return absl::OkStatus();
}

absl::Status LookAtParts(Disk& disk, const CheckpointPublish& publish,
                         const v1::CheckpointManifest& manifest) {
  for (int i = 0; i < manifest.parts_size(); ++i) {
    const v1::CheckpointPart& part = manifest.parts(i);
    const absl::Status status = ProbeShardFile(disk, publish.folder, publish.job, part);
    if (status.ok()) continue;
    const ServerRef& writer = publish.writers[static_cast<size_t>(i)];
    return Annotate(
        status, absl::StrCat(writer.node, " (", writer.address, ") has written ", part.file(),
                             " into ", publish.folder,
                             " of its own host, and this scheduler does not find it whole in that "
                             "folder; expected one folder: mount it on both hosts, or name one "
                             "that they share as checkpoints.directory of the job"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::CheckpointManifest> MakeManifest(const CheckpointPublish& publish,
                                                    const AdmittedJob& job, int64_t unix_ms,
                                                    const v1::CheckpointManifest& base) {
  v1::CheckpointManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_job_id(publish.job);
  manifest.set_checkpoint_id(publish.id.value());
  *manifest.mutable_spec() = job.spec;
  // FillDefaults has set `slots`, which a job file may set only with BSP. Without it, the
  // specification can be submitted again.
  if (!job.plan.consistency.synchronous())
    manifest.mutable_spec()->mutable_training()->clear_slots();
  for (const v1::TableSpec& table : job.tables) *manifest.add_tables() = table;
  for (const CheckpointPart& part : publish.parts) EncodePart(part, *manifest.add_parts());
  CAPSTAN_RETURN_IF_ERROR(AddBases(base, manifest));
  manifest.set_epoch(publish.at.epoch.value());
  manifest.set_iteration(publish.at.iteration.value());
  for (const Range& range : publish.at.untrained) {
    v1::PositionRange& untrained = *manifest.add_untrained();
    untrained.set_begin(range.begin);
    untrained.set_end(range.end);
  }
  manifest.set_saved_unix_ms(unix_ms);
  for (const EpochResult& result : publish.at.results)
    EncodeEpochResult(result, *manifest.add_results());
  manifest.set_job_state(EncodeResumePoint(publish.at));
  return manifest;
}

absl::Status PublishCheckpoint(Disk& disk, const CheckpointPublish& publish, const AdmittedJob& job,
                               int64_t unix_ms) {
  v1::CheckpointManifest base;
  const auto rests = [](const CheckpointPart& part) { return part.base != CheckpointId(0); };
  if (std::any_of(publish.parts.begin(), publish.parts.end(), rests)) {
    CAPSTAN_ASSIGN_OR_RETURN(base,
                             ReadManifest(disk, CheckpointPath(publish.job_folder, publish.base)));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest,
                           MakeManifest(publish, job, unix_ms, base));
  CAPSTAN_RETURN_IF_ERROR(LookAtParts(disk, publish, manifest));
  return WriteManifest(disk, publish.folder, manifest);
}

void RemoveCheckpoints(Disk& disk, const CheckpointRemoval& removal) {
  if (removal.staying.empty()) return;
  RemoveOthers(disk, removal.job_folder, removal.floor, removal.staying, removal.pinned)
      .status()
      .IgnoreError();
}

absl::Status RemoveGivenUp(Disk& disk, const std::string& folder) {
  return ReadManifest(disk, folder).ok() ? absl::OkStatus() : RemoveCheckpoint(disk, folder);
}

absl::StatusOr<RestoreFrom> FindRestore(Disk& disk, const std::string& folder,
                                        const AdmittedJob& job) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(disk, folder));
  if (const std::vector<std::string> wrong = WhyNotRestorable(manifest, job); !wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job cannot go on from ", folder, ":\n", absl::StrJoin(wrong, "\n")));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::string one_name, OneName("restore_folder", folder));
  // The path has no "/" at its end, because the checkpoints that it rests on lie beside it.
  const size_t end = folder.find_last_not_of('/');
  RestoreFrom restore{.folder = folder.substr(0, end + 1),
                      .id = CheckpointId(manifest.checkpoint_id()),
                      .rests_on = RestsOn(manifest),
                      .pinned_in = std::filesystem::path(one_name).parent_path().string()};
  CAPSTAN_ASSIGN_OR_RETURN(restore.at, DecodeResumePoint(manifest.job_state()));
  CAPSTAN_RETURN_IF_ERROR(Annotate(CheckResumePoint(restore.at, job.plan),
                                   absl::StrCat(folder, "/", kManifestFile, ": job_state")));
  for (const v1::CheckpointPart& part : manifest.parts()) {
    const CheckpointPart decoded = DecodePart(part);
    restore.shards.push_back({decoded.shard, decoded.elements});
  }
  return restore;
}

}  // namespace capstan::scheduler
