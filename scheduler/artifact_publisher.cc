#include "scheduler/artifact_publisher.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/tensor/staged_model.h"
#include "common/types/staging.h"
#include "scheduler/checkpoint/initial_checkpoint.h"
#include "scheduler/checkpoint/job_checkpoint.h"
#include "scheduler/files/uploads.h"

namespace capstan::scheduler {

ArtifactPublisher::ArtifactPublisher(const std::string& data_folder, DurableState* state)
    : data_folder_(data_folder), state_(state), thread_(kWorkMax) {}

void ArtifactPublisher::Post(FileWork work) {
  for (FileWork::Manifest& manifest : work.manifests) {
    thread_.Post([this, what = std::move(manifest)] { Publish(what.publish, *what.job); });
  }
  for (const std::string& folder : work.given_up) {
    thread_.Post([this, folder] { RemoveGivenUpIn(folder); });
  }
  for (const JobId& job : work.removals) {
    thread_.Post([this, job] { RemoveCheckpointsOf(job); });
  }
  for (ModelPublish& model : work.models) {
    thread_.Post([this, what = std::move(model)] { Publish(what); });
  }
  for (const std::shared_ptr<const AdmittedJob>& job : work.over) {
    thread_.Post([this, job] {
      RemoveInitialWeights(*job);
      RemoveUpload(*job);
    });
  }
  if (!work.left.empty()) {
    thread_.Post([left = std::move(work.left)] {
      for (const FileWork::Left& each : left)
        RemoveStagedModelsUpTo(each.last_incarnation, each.folder);
    });
  }
}

void ArtifactPublisher::Publish(const CheckpointPublish& publish, const AdmittedJob& job) {
  {
    absl::MutexLock lock(&state_->mutex());
    if (!state_->Running().ok()) return;  // The next scheduler publishes it.
  }
  const absl::Status status = PublishCheckpoint(disk_, publish, job, state_->UnixMs());
  disk_.Remove(absl::StrCat(publish.folder, "/", kFolderMark)).IgnoreError();  // No longer needed.
  absl::MutexLock lock(&state_->mutex());
  Actions actions;
  state_->core().CheckpointPublished(publish.job, publish.id, status, state_->Now(), actions);
  state_->Commit(std::move(actions));
}

void ArtifactPublisher::RemoveGivenUpIn(const std::string& folder) {
  absl::MutexLock removing(&removal_mutex_);
  const absl::Status removed = RemoveGivenUp(disk_, folder);
  if (removed.ok()) return;
  LogWarning({}, "what is left of a checkpoint that was given up stays: {}",
             std::string(removed.message()));
}

void ArtifactPublisher::RemoveCheckpointsOf(const JobId& job) {
  absl::MutexLock removing(&removal_mutex_);
  CheckpointRemoval removal;
  {
    absl::MutexLock lock(&state_->mutex());
    if (!state_->Running().ok()) return;  // The next complete checkpoint removes them.
    removal = state_->core().jobs().CheckpointsToRemove(job);
  }
  RemoveCheckpoints(disk_, removal);
}

// One thread moves all models, so that a model which was begun later also replaces the earlier one.
void ArtifactPublisher::Publish(const ModelPublish& publish) {
  // While the core awaits this model, no other task exports. All other staged models are from dead
  // tasks.
  const std::vector<StagedModel> staged = StagedModelsIn(publish.folder);
  {
    absl::MutexLock lock(&state_->mutex());
    if (!state_->Running().ok() || !state_->core().jobs().AwaitsModel(publish.exporter)) return;
  }
  const absl::Status status = PublishModel(publish.staged, publish.folder, publish.exporter.job,
                                           publish.exporter.incarnation);
  if (status.ok()) {
    for (const StagedModel& left : staged) RemoveStagedModel(left.path);
  }
  absl::MutexLock lock(&state_->mutex());
  Actions actions;
  state_->core().ModelPublished(publish.exporter, status, state_->Now(), actions);
  state_->Commit(std::move(actions));
}

void ArtifactPublisher::RemoveLeftInitialWeights() {
  std::vector<std::shared_ptr<const AdmittedJob>> ended;
  {
    absl::MutexLock lock(&state_->mutex());
    for (const auto& [id, job] : state_->jobs()) {
      const JobEntry* const entry = state_->core().jobs().Find(id);
      // The weights of a job that has run are removed when its tasks are gone.
      if (entry != nullptr && entry->ended() && entry->run == nullptr) ended.push_back(job);
    }
  }
  for (const auto& job : ended) RemoveInitialWeights(*job);
}

void ArtifactPublisher::RemoveInitialWeights(const AdmittedJob& job) {
  if (job.submitted.training().initial_weights().empty()) return;
  const absl::Status removed =
      RemoveInitialCheckpoint(disk_, InitialCheckpointPath(data_folder_, job));
  if (removed.ok()) return;
  LogWarning({.job = job.plan.id}, "its initial weights stay: {}", std::string(removed.message()));
}

void ArtifactPublisher::RemoveUpload(const AdmittedJob& job) {
  const auto uploaded =
      UploadedFile(data_folder_, job.plan.owner, job.submitted.training().initial_weights());
  if (!uploaded.ok() || uploaded->empty()) return;  // Its owner has sent others since.
  disk_.Remove(*uploaded).IgnoreError();            // Else removed when its owner sends others.
}

}  // namespace capstan::scheduler
