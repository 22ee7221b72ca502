#include "scheduler/cli/operations/checkpoint_files.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/status/status_macros.h"
#include "common/storage/write_durably.h"

namespace capstan::cli {
namespace {

CheckpointOutput Describe(Disk& disk, const CheckpointEntry& entry, Depth depth) {
  CheckpointOutput output;
  output.set_checkpoint_id(entry.id.value());
  output.set_path(entry.path);
  absl::Status status = entry.status;
  output.set_state("complete");
  if (status.ok() && depth == Depth::kEveryByte) {
    status = VerifyCheckpoint(disk, entry.path).status();
    output.set_state("verified");
  }
  if (absl::IsNotFound(status)) {
    output.set_state("unfinished");
  } else if (!status.ok()) {
    output.set_state("damaged");
    output.set_detail(std::string(status.message()));
  }
  if (!entry.status.ok()) return output;
  output.set_job_id(entry.manifest.job_id());
  output.set_epoch(entry.manifest.epoch() + 1);
  output.set_iteration(entry.manifest.iteration());
  output.set_saved_unix_ms(entry.manifest.saved_unix_ms());
  output.set_shards(entry.manifest.parts_size());
  int64_t bytes = 0;
  for (const v1::CheckpointPart& part : entry.manifest.parts()) bytes += part.bytes();
  output.set_bytes(bytes);
  output.set_rests_on(RestsOn(entry.manifest).value());
  return output;
}

// Returns the absolute path, without a slash at the end.
std::string Absolute(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(folder, error);
  std::string text = (error ? std::filesystem::path(folder) : path).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// Returns the entry of the checkpoint at `path`; nullopt if it has no manifest.
absl::StatusOr<std::optional<CheckpointEntry>> OneCheckpoint(Disk& disk, const std::string& path) {
  absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(disk, path);
  if (absl::IsNotFound(manifest.status())) return std::nullopt;
  CheckpointEntry entry{.path = path};
  if (manifest.ok()) {
    entry.id = CheckpointId(manifest->checkpoint_id());
    entry.manifest = *std::move(manifest);
  } else if (absl::IsDataLoss(manifest.status())) {
    entry.status = manifest.status();
  } else {
    return manifest.status();
  }
  return entry;
}

void ForgetInitialWeights(v1::JobSpec& spec) {
  if (!spec.has_training()) return;
  spec.mutable_training()->clear_initial_weights();
  spec.mutable_training()->clear_initial_weights_partial();
}

}  // namespace

absl::StatusOr<CheckpointListOutput> DescribeCheckpoints(Disk& disk, const std::string& folder,
                                                         Depth depth) {
  const std::string path = Absolute(folder);
  CAPSTAN_RETURN_IF_ERROR(disk.List(path).status());
  CheckpointListOutput output;
  CAPSTAN_ASSIGN_OR_RETURN(const std::optional<CheckpointEntry> one, OneCheckpoint(disk, path));
  if (one.has_value()) {
    *output.add_checkpoints() = Describe(disk, *one, depth);
    return output;
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(disk, path));
  for (const CheckpointEntry& entry : entries) {
    *output.add_checkpoints() = Describe(disk, entry, depth);
  }
  return output;
}

absl::StatusOr<RestoreSource> FindRestoreSource(Disk& disk, const std::string& folder) {
  const std::string path = Absolute(folder);
  CAPSTAN_RETURN_IF_ERROR(disk.List(path).status());
  CAPSTAN_ASSIGN_OR_RETURN(const std::optional<CheckpointEntry> one, OneCheckpoint(disk, path));
  if (!one.has_value()) {
    CAPSTAN_ASSIGN_OR_RETURN(FoundCheckpoint found, NewestComplete(disk, path));
    return RestoreSource{.path = std::move(found.path),
                         .manifest = std::move(found.manifest),
                         .passed_over = std::move(found.passed_over)};
  }
  absl::StatusOr<v1::CheckpointManifest> manifest = VerifyCheckpoint(disk, path);
  if (manifest.ok()) return RestoreSource{.path = path, .manifest = *std::move(manifest)};
  if (!absl::IsDataLoss(manifest.status())) return manifest.status();
  const absl::StatusOr<FoundCheckpoint> beside = NewestComplete(disk, FolderOf(path));
  return absl::DataLossError(absl::StrCat(
      "the checkpoint is damaged: ", manifest.status().message(),
      beside.ok() ? absl::StrCat("\nThe newest whole one beside it: ", beside->path) : ""));
}

absl::StatusOr<v1::JobSpec> RestoredJob(const v1::CheckpointManifest& manifest,
                                        const SpecChanges& changes) {
  v1::JobSpec spec = manifest.spec();
  // A default output folder has the old job's name; the new job gets its own folder.
  if (absl::EndsWith(spec.output().directory(), absl::StrCat("/jobs/", manifest.job_id()))) {
    spec.mutable_output()->clear_directory();
  }
  ForgetInitialWeights(spec);
  return ChangedJob(
      absl::StrCat("checkpoint ", manifest.checkpoint_id(), " of ", manifest.job_id()),
      std::move(spec), changes);
}

absl::StatusOr<v1::JobSpec> ResumedJob(const v1::JobStatus& job, const SpecChanges& changes) {
  v1::JobSpec spec = job.spec();
  ForgetInitialWeights(spec);
  // By default the number of slots is that of the workers, which may have changed.
  const v1::Training& training = job.effective_spec().training();
  if (job.mode() == "bsp" && training.has_slots()) {
    spec.mutable_training()->set_slots(training.slots());
  }
  return ChangedJob(job.job_id(), std::move(spec), changes);
}

}  // namespace capstan::cli
