#include "common/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr absl::string_view kPrefix = "checkpoint-";

absl::Status IgnoreMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

std::string CheckpointPath(const std::string& folder, CheckpointId id) {
  return absl::StrCat(folder, "/", kPrefix, id.value());
}

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(Disk& disk,
                                                             const std::string& folder) {
  absl::StatusOr<std::vector<std::string>> names = disk.List(folder);
  if (absl::IsNotFound(names.status())) return std::vector<CheckpointEntry>();
  if (!names.ok()) return names.status();
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : *names) {
    uint64_t id = 0;
    if (!absl::StartsWith(name, kPrefix) ||
        !absl::SimpleAtoi(absl::string_view(name).substr(kPrefix.size()), &id) || id == 0) {
      continue;
    }
    CheckpointEntry entry{.id = CheckpointId(id), .path = absl::StrCat(folder, "/", name)};
    absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(disk, entry.path);
    if (manifest.ok() && manifest->checkpoint_id() != id) {
      manifest = absl::DataLossError(absl::StrCat(entry.path, "/", kManifestFile,
                                                  ": it is that of checkpoint ",
                                                  manifest->checkpoint_id()));
    }
    if (manifest.ok()) {
      entry.manifest = *std::move(manifest);
    } else {
      entry.status = manifest.status();
    }
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.id > b.id; });
  return entries;
}

absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(Disk& disk, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(disk, path));
  for (const v1::CheckpointPart& part : manifest.parts()) {
    CAPSTAN_RETURN_IF_ERROR(ReadShardFile(disk, path, manifest.job_id(), part).status());
  }
  return manifest;
}

absl::StatusOr<FoundCheckpoint> NewestComplete(Disk& disk, const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries,
                           ListCheckpoints(disk, folder));
  FoundCheckpoint found;
  for (const CheckpointEntry& entry : entries) {
    absl::Status status = entry.status;
    if (status.ok()) {
      absl::StatusOr<v1::CheckpointManifest> manifest = VerifyCheckpoint(disk, entry.path);
      if (manifest.ok()) {
        found.path = entry.path;
        found.manifest = *std::move(manifest);
        return found;
      }
      status = manifest.status();
    }
    found.passed_over.push_back(absl::StrCat(
        entry.path, ": ", absl::IsNotFound(status) ? "it was never finished" : status.message()));
  }
  return absl::NotFoundError(absl::StrCat(
      "no complete checkpoint in ", folder,
      found.passed_over.empty() ? "" : "; passed over: ", absl::StrJoin(found.passed_over, "; ")));
}

absl::Status RemoveCheckpoint(Disk& disk, const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(IgnoreMissing(disk.Remove(absl::StrCat(path, "/", kManifestFile))));
  const absl::StatusOr<std::vector<std::string>> names = disk.List(path);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(names.status());
  CAPSTAN_RETURN_IF_ERROR(disk.SyncFolder(path));
  for (const std::string& name : *names) {
    CAPSTAN_RETURN_IF_ERROR(IgnoreMissing(disk.Remove(absl::StrCat(path, "/", name))));
  }
  return IgnoreMissing(disk.Remove(path));
}

absl::StatusOr<std::vector<std::string>> RemoveOldest(Disk& disk, const std::string& folder,
                                                      int keep) {
  assert(keep >= 1);
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries,
                           ListCheckpoints(disk, folder));
  std::vector<std::string> removed;
  int complete = 0;
  for (const CheckpointEntry& entry : entries) {
    const bool ok = entry.status.ok();
    // An error of the disk says nothing about the checkpoint: it stays.
    if (!ok && !absl::IsNotFound(entry.status) && !absl::IsDataLoss(entry.status)) continue;
    const bool remove = ok ? complete >= keep : complete > 0;
    complete += ok;
    if (!remove) continue;
    CAPSTAN_RETURN_IF_ERROR(RemoveCheckpoint(disk, entry.path));
    removed.push_back(entry.path);
  }
  return removed;
}

}  // namespace capstan
