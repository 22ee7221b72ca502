#include "common/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/write_durably.h"
#include "common/types/staging.h"

namespace capstan {
namespace {

constexpr uint64_t kIdMax = uint64_t{1} << 62;  // No job reaches it: a larger id is not ours.

absl::Status IgnoreMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// Returns whether the writers of checkpoints give files such a name.
bool IsOurs(absl::string_view name) {
  absl::ConsumeSuffix(&name, kTemporarySuffix);
  return name == kManifestFile || name == kFolderMark || absl::EndsWith(name, kPartSuffix);
}

// Lists the ids of all checkpoints in `folder`, complete or not, newest first.
absl::StatusOr<std::vector<CheckpointId>> IdsIn(Disk& disk, const std::string& folder) {
  absl::StatusOr<std::vector<std::string>> names = disk.List(folder);
  if (absl::IsNotFound(names.status())) return std::vector<CheckpointId>();
  if (!names.ok()) return names.status();
  std::vector<CheckpointId> ids;
  for (absl::string_view name : *names) {
    uint64_t id = 0;
    const bool named = absl::ConsumePrefix(&name, kCheckpointPrefix) &&
                       absl::SimpleAtoi(name, &id) && absl::StrCat(id) == name;
    if (named && id > 0 && id <= kIdMax) ids.push_back(CheckpointId(id));
  }
  std::sort(ids.rbegin(), ids.rend());
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(Disk& disk,
                                                             const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, IdsIn(disk, folder));
  std::vector<CheckpointEntry> entries;
  for (const CheckpointId id : ids) {
    CheckpointEntry entry{.id = id, .path = CheckpointPath(folder, id)};
    absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(disk, entry.path);
    if (manifest.ok() && manifest->checkpoint_id() != id.value()) {
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
  return entries;
}

absl::StatusOr<CheckpointId> NewestId(Disk& disk, const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, IdsIn(disk, folder));
  return ids.empty() ? CheckpointId(0) : ids.front();
}

absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(Disk& disk, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(disk, path));
  for (const v1::CheckpointPart& part : manifest.parts()) {
    CAPSTAN_RETURN_IF_ERROR(ReadPart(disk, path, manifest.job_id(), part).status());
  }
  return manifest;
}

absl::StatusOr<FoundCheckpoint> NewestComplete(Disk& disk, const std::string& folder,
                                               const JobId& job, CheckpointId floor) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries,
                           ListCheckpoints(disk, folder));
  FoundCheckpoint found;
  for (const CheckpointEntry& entry : entries) {
    absl::Status status = entry.status;
    const bool of_other = status.ok() && !job.empty() && entry.manifest.job_id() != job;
    if (of_other || entry.id <= floor) continue;
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
  bool has_others = false;
  for (const std::string& name : *names) {
    if (!IsOurs(name)) {
      has_others = true;
      continue;
    }
    CAPSTAN_RETURN_IF_ERROR(IgnoreMissing(disk.Remove(absl::StrCat(path, "/", name))));
  }
  return has_others ? absl::OkStatus() : IgnoreMissing(disk.Remove(path));
}

absl::StatusOr<std::vector<std::string>> RemoveOthers(
    Disk& disk, const std::string& folder, CheckpointId floor,
    absl::Span<const CheckpointId> staying,
    absl::Span<const std::pair<CheckpointId, CheckpointId>> pinned) {
  assert(!staying.empty());
  const CheckpointId newest = *std::max_element(staying.begin(), staying.end());
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, IdsIn(disk, folder));
  std::vector<std::string> removed;
  for (const CheckpointId id : ids) {  // Newest first: each is removed before its bases.
    const bool stays = std::find(staying.begin(), staying.end(), id) != staying.end() ||
                       std::any_of(pinned.begin(), pinned.end(), [id](const auto& pin) {
                         return pin.first <= id && id <= pin.second;
                       });
    if (stays || id > newest || id <= floor) continue;
    removed.push_back(CheckpointPath(folder, id));
    CAPSTAN_RETURN_IF_ERROR(RemoveCheckpoint(disk, removed.back()));
  }
  return removed;
}

}  // namespace capstan
