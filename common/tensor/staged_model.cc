#include "common/tensor/staged_model.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"
#include "common/storage/files/path_access.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/types/staging.h"
#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// Returns the writer of the staged model at `path`, which its name holds. Nothing if the name has
// another form.
std::optional<Incarnation> WriterOf(const fs::path& path) {
  const std::string name = path.filename().string();
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, kStagedModelPrefix)) return std::nullopt;
  const std::vector<absl::string_view> numbers = absl::StrSplit(rest, '-');
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &rank) ||
      !absl::SimpleAtoi(numbers[1], &incarnation)) {
    return std::nullopt;
  }
  // The name must be as it is written: no sign, no blank, no leading zero.
  if (name != absl::StrCat(kStagedModelPrefix, rank, "-", incarnation)) return std::nullopt;
  return Incarnation(incarnation);
}

// Moves a file. It is no error if the file was moved before and is in its place already.
absl::Status Move(const fs::path& from, const fs::path& to) {
  if (RenamePath(from, to) == 0) return absl::OkStatus();
  const int error = errno;
  struct stat there;
  if (error == ENOENT && StatPath(to, &there) == 0) return absl::OkStatus();
  if (error == EXDEV) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot move ", from.string(), " to ", to.string(),
        ": they lie on different file systems (or quotas), expected one: a model is renamed, not "
        "copied"));
  }
  return absl::ErrnoToStatus(error,
                             absl::StrCat("cannot move ", from.string(), " to ", to.string()));
}

bool IsPublished(const std::string& folder, const JobId& job, Incarnation exporter) {
  const absl::StatusOr<v1::ModelManifest> manifest = ReadModelManifest(folder);
  return manifest.ok() && manifest->job_id() == job && manifest->incarnation() == exporter.value();
}

}  // namespace

absl::Status PublishModel(const std::string& staged, const std::string& folder, const JobId& job,
                          Incarnation exporter) {
  const absl::StatusOr<std::vector<std::string>> files = ModelFilesIn(staged);
  if (absl::IsNotFound(files.status()) && IsPublished(folder, job, exporter)) {
    return absl::OkStatus();
  }
  CAPSTAN_RETURN_IF_ERROR(files.status());
  for (const StagedModel& other : StagedModelsIn(folder)) {
    if (other.writer < exporter) RemoveStagedModel(other.path);
  }
  for (const std::string& file : *files) {
    // The manifest is moved last, once the files that it names are durable.
    if (file == kModelManifestFile) CAPSTAN_RETURN_IF_ERROR(SyncDirectory(folder));
    CAPSTAN_RETURN_IF_ERROR(Move(fs::path(staged) / file, fs::path(folder) / file));
  }
  CAPSTAN_RETURN_IF_ERROR(SyncDirectory(folder));
  RemoveStagedModel(staged);
  return absl::OkStatus();
}

std::vector<StagedModel> StagedModelsIn(const std::string& folder) {
  std::vector<StagedModel> staged;
  DIR* entries = OpenFolder(folder);
  if (entries == nullptr) return staged;
  while (const dirent* entry = readdir(entries)) {
    const fs::path path = fs::path(folder) / entry->d_name;
    if (const auto writer = WriterOf(path)) staged.push_back({path.string(), *writer});
  }
  closedir(entries);
  return staged;
}

void RemoveStagedModel(const std::string& staged) {
  if (WriterOf(staged)) RemoveTree(staged);
}

void RemoveStagedModelsUpTo(Incarnation last, const std::string& folder) {
  const absl::StatusOr<v1::ModelManifest> published = ReadModelManifest(folder);
  for (const StagedModel& staged : StagedModelsIn(folder)) {
    if (staged.writer > last) continue;
    const bool is_newest = !published.ok() || Incarnation(published->incarnation()) < staged.writer;
    if (is_newest && ReadModelManifest(staged.path).ok()) continue;
    RemoveStagedModel(staged.path);
  }
}

}  // namespace capstan
