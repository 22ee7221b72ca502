#include "common/job/parse/job_paths.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan {
namespace {

void Add(std::string field, std::string* path, std::vector<JobPath>& paths) {
  if (!path->empty()) paths.push_back({std::move(field), path});
}

void AddSplit(const std::string& field, v1::Split* split, std::vector<JobPath>& paths) {
  Add(absl::StrCat(field, ".images"), split->mutable_images(), paths);
  Add(absl::StrCat(field, ".labels"), split->mutable_labels(), paths);
  for (int i = 0; i < split->files_size(); ++i) {
    Add(absl::StrCat(field, ".files[", i, "]"), split->mutable_files(i), paths);
  }
}

}  // namespace

std::vector<JobPath> PathsOf(v1::JobSpec* spec) {
  std::vector<JobPath> paths;
  if (spec->data().has_train())
    AddSplit("data.train", spec->mutable_data()->mutable_train(), paths);
  if (spec->data().has_test()) AddSplit("data.test", spec->mutable_data()->mutable_test(), paths);
  if (spec->data().has_validation()) {
    AddSplit("data.validation", spec->mutable_data()->mutable_validation(), paths);
  }
  if (spec->has_training()) {
    Add("training.initial_weights", spec->mutable_training()->mutable_initial_weights(), paths);
  }
  if (spec->has_output()) {
    Add("output.directory", spec->mutable_output()->mutable_directory(), paths);
  }
  if (spec->has_checkpoints()) {
    Add("checkpoints.directory", spec->mutable_checkpoints()->mutable_directory(), paths);
  }
  return paths;
}

absl::Status CheckJobPaths(const AllowedPaths& allowed, absl::string_view user, v1::JobSpec spec) {
  std::vector<std::string> refused;
  for (const JobPath& named : PathsOf(&spec)) {
    const absl::Status status = allowed.Check(user, *named.path);
    if (!status.ok()) refused.push_back(absl::StrCat(named.field, ": ", status.message()));
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrJoin(refused, "\n"));
}

}  // namespace capstan
