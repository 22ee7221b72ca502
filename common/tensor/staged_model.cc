#include "common/tensor/staged_model.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tensor/durable_file.h"
#include "common/tensor/model_file.h"
#include "common/types/staging.h"
#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

bool IsStaged(const fs::path& path) {
  return absl::StartsWith(path.filename().string(), kStagedModelPrefix);
}

// A file that is in its place already was moved before.
absl::Status Move(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  if (error == ENOENT && access(to.c_str(), F_OK) == 0) return absl::OkStatus();
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
  for (const std::string& file : *files) {
    // The last: what it names is there for good.
    if (file == kModelManifestFile) CAPSTAN_RETURN_IF_ERROR(SyncDirectory(folder));
    CAPSTAN_RETURN_IF_ERROR(Move(fs::path(staged) / file, fs::path(folder) / file));
  }
  CAPSTAN_RETURN_IF_ERROR(SyncDirectory(folder));
  RemoveStagedModel(staged);
  return absl::OkStatus();
}

std::vector<std::string> StagedModelsIn(const std::string& folder) {
  std::vector<std::string> staged;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (IsStaged(it->path())) staged.push_back(it->path().string());
  }
  return staged;
}

void RemoveStagedModel(const std::string& staged) {
  std::error_code error;
  if (IsStaged(staged)) fs::remove_all(staged, error);
}

}  // namespace capstan
