#include "scheduler/job_submission.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/job/parse/job_paths.h"
#include "common/process/random_hex.h"
#include "common/security/capability.h"
#include "common/security/job_access.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/admission/plugin_digests.h"
#include "scheduler/checkpoint/initial_checkpoint.h"
#include "scheduler/checkpoint/job_checkpoint.h"
#include "scheduler/files/uploads.h"

namespace capstan::scheduler {

namespace {

JobSubmission::JobChecker OrInThisProcess(JobSubmission::JobChecker check_job) {
  if (check_job) return check_job;
  return [](const v1::JobSpec& spec, int /*stop*/) { return CheckJob(spec); };
}

}  // namespace

JobSubmission::JobSubmission(const std::string& data_folder, const std::string& cluster_id,
                             const AllowedPaths* allowed, JobChecker check_job, DurableState* state,
                             ArtifactPublisher* artifacts)
    : data_folder_(data_folder),
      cluster_id_(cluster_id),
      allowed_(allowed),
      check_job_(OrInThisProcess(std::move(check_job))),
      state_(state),
      artifacts_(artifacts) {}

// One thread takes all submissions, so the first call has ended when its repetition is checked.
absl::Status JobSubmission::Submit(const v1::SubmitJobRequest& request, const JobCaller& caller,
                                   const Call<v1::SubmitJobResponse>& call) {
  {
    absl::MutexLock lock(&state_->mutex());
    CAPSTAN_RETURN_IF_ERROR(state_->Running());
    const JobId* made =
        state_->core().jobs().JobOfSubmission(request.submission_id(), OwnerFor(caller));
    if (made != nullptr) {
      call.response->set_job_id(*made);
      state_->Commit({}, {{call.reactor}});
      return absl::OkStatus();
    }
  }
  return Check(request, caller, call);
}

absl::Status JobSubmission::Check(const v1::SubmitJobRequest& request, const JobCaller& caller,
                                  const Call<v1::SubmitJobResponse>& call) {
  CAPSTAN_ASSIGN_OR_RETURN(
      const std::string uploaded,
      UploadedFile(data_folder_, OwnerFor(caller), request.spec().training().initial_weights()));
  absl::Status submitted = CheckPaths(request, caller, uploaded);
  if (submitted.ok()) submitted = Admit(request, caller, uploaded, call);
  // Callers submit again where the scheduler was unavailable, and that needs the file.
  if (!submitted.ok() && !absl::IsUnavailable(submitted) && !uploaded.empty()) {
    disk_.Remove(uploaded).IgnoreError();  // Else removed when its owner sends others.
  }
  return submitted;
}

absl::Status JobSubmission::CheckPaths(const v1::SubmitJobRequest& request, const JobCaller& caller,
                                       const std::string& uploaded) const {
  if (allowed_ == nullptr) return absl::OkStatus();
  const std::string user = NameOf(caller);
  v1::JobSpec spec = request.spec();
  if (!uploaded.empty()) spec.mutable_training()->clear_initial_weights();
  CAPSTAN_RETURN_IF_ERROR(CheckJobPaths(*allowed_, user, spec));
  const std::string& restore = request.restore_folder();
  if (restore.empty()) return absl::OkStatus();
  return Annotate(allowed_->Check(user, restore), "restore_folder");
}

absl::Status JobSubmission::Admit(const v1::SubmitJobRequest& request, const JobCaller& caller,
                                  const std::string& uploaded,
                                  const Call<v1::SubmitJobResponse>& call) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string folder,
                           FolderToRestore(request, caller, *call.response));
  v1::JobSpec spec = request.spec();
  if (!uploaded.empty()) spec.mutable_training()->set_initial_weights(uploaded);
  CAPSTAN_ASSIGN_OR_RETURN(JobCheck check, RunCheck(spec));
  CAPSTAN_ASSIGN_OR_RETURN(AdmittedJob job, AdmitJob(request.spec(), std::move(check)));
  job.plan.submission_id = request.submission_id();
  job.plan.owner = OwnerFor(caller);
  CAPSTAN_RETURN_IF_ERROR(FindPlugins(job));
  const OldModel old_model = request.replace_model() ? OldModel::kReplace : OldModel::kKeep;
  if (folder.empty()) return NameAndEnter(std::move(job), old_model, std::nullopt, call);
  absl::MutexLock pinning(&artifacts_->removal_mutex());
  CAPSTAN_ASSIGN_OR_RETURN(RestoreFrom restore, FindRestore(disk_, folder, job));
  v1::RestoredPoint& restored = *call.response->mutable_restored();
  restored.set_folder(restore.folder);
  restored.set_checkpoint_id(restore.id.value());
  restored.set_epoch(restore.at.epoch.value() + 1);
  restored.set_iteration(restore.at.iteration.value());
  return NameAndEnter(std::move(job), old_model, std::move(restore), call);
}

absl::StatusOr<JobCheck> JobSubmission::RunCheck(const v1::JobSpec& spec) {
  absl::StatusOr<JobCheck> check = check_job_(spec, stop_.descriptor());
  if (check.ok()) return check;
  // Stopping the scheduler may end the child process, too, which is no error of the job.
  absl::MutexLock lock(&state_->mutex());
  CAPSTAN_RETURN_IF_ERROR(state_->Running());
  return check;
}

absl::Status JobSubmission::FindPlugins(AdmittedJob& job) {
  if (!NamesPluginRules(job)) return absl::OkStatus();
  absl::MutexLock lock(&state_->mutex());
  CAPSTAN_RETURN_IF_ERROR(state_->Running());
  return FixPluginDigests(state_->core().Nodes(), job);
}

absl::Status JobSubmission::NameAndEnter(AdmittedJob job, OldModel old_model,
                                         std::optional<RestoreFrom> restore,
                                         const Call<v1::SubmitJobResponse>& call) {
  uint64_t number = 0;
  {
    absl::MutexLock lock(&state_->mutex());
    CAPSTAN_RETURN_IF_ERROR(state_->Running());
    number = state_->core().TakeJobNumber();
  }
  CAPSTAN_RETURN_IF_ERROR(NameJob(number, data_folder_, disk_, old_model, job));
  job.plan.unique_id = absl::StrCat(cluster_id_, "-", RandomHex());
  CAPSTAN_ASSIGN_OR_RETURN(job.capability_key, CapabilityKey::Draw());
  if (!job.initial_values.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(restore, KeepInitialValues(job));
  }
  auto admitted = std::make_shared<const AdmittedJob>(std::move(job));
  const absl::Status entered = Enter(admitted, restore, call);
  if (!entered.ok()) artifacts_->RemoveInitialWeights(*admitted);
  return entered;
}

absl::Status JobSubmission::Enter(const std::shared_ptr<const AdmittedJob>& admitted,
                                  const std::optional<RestoreFrom>& restore,
                                  const Call<v1::SubmitJobResponse>& call) {
  const JobId& id = admitted->plan.id;
  absl::MutexLock lock(&state_->mutex());
  CAPSTAN_RETURN_IF_ERROR(state_->Running());
  SchedulerCore& core = state_->core();
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(core.SubmitJob(admitted->plan, state_->Now(), actions, restore));
  state_->jobs()[id] = admitted;
  call.response->set_job_id(id);
  for (const std::string& warning : admitted->warnings) call.response->add_warnings(warning);
  const std::string too_small = core.WhyTooSmall(id, state_->Now());
  if (!too_small.empty()) {
    call.response->add_warnings(absl::StrCat("the cluster is too small for this job: ", too_small));
  }
  state_->Commit(std::move(actions), {{call.reactor}}, {EncodeAdmitted(*admitted)});
  return absl::OkStatus();
}

absl::StatusOr<std::string> JobSubmission::FolderToRestore(const v1::SubmitJobRequest& request,
                                                           const JobCaller& caller,
                                                           v1::SubmitJobResponse& response) {
  const bool resumes = !request.resume_job().empty();
  if (resumes && !request.restore_folder().empty()) {
    return absl::InvalidArgumentError("resume_job: expected either this or restore_folder");
  }
  if (!resumes && request.restore_folder().empty()) return "";
  const std::string& weights = request.spec().training().initial_weights();
  if (!weights.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.initial_weights: got \"", weights,
                     "\", expected nothing: the job goes on with a checkpoint's parameters"));
  }
  if (!resumes) return request.restore_folder();
  return NewestCheckpointOf(request.resume_job(), caller, response);
}

absl::StatusOr<std::string> JobSubmission::NewestCheckpointOf(const JobId& job,
                                                              const JobCaller& caller,
                                                              v1::SubmitJobResponse& response) {
  std::string folder, begun_with;
  CheckpointId floor;
  {
    absl::MutexLock lock(&state_->mutex());
    CAPSTAN_RETURN_IF_ERROR(CheckMayRead(state_->jobs(), job, caller));
    CAPSTAN_ASSIGN_OR_RETURN(const JobView view, state_->core().Job(job, state_->Now()));
    if (!view.ended) {
      return absl::FailedPreconditionError(absl::StrCat(job, " has not ended: ", view.detail,
                                                        "; capstan job stop --save ", job,
                                                        " saves and stops it"));
    }
    folder = state_->jobs().at(job)->plan.checkpoint_folder;
    floor = state_->jobs().at(job)->plan.checkpoint_floor;
    // A checkpoint of initial weights is removed by now; a new job reads its weights again.
    const std::optional<RestoreFrom>& begun = state_->core().jobs().Find(job)->restore;
    if (begun && state_->jobs().at(job)->submitted.training().initial_weights().empty()) {
      begun_with = begun->folder;
    }
  }
  // The checkpoints of an ended job are never removed, so removal_mutex() need not be held while
  // all their bytes are read.
  const absl::StatusOr<FoundCheckpoint> found = NewestComplete(disk_, folder, job, floor);
  if (found.ok()) {
    for (const std::string& passed : found->passed_over) {
      response.add_warnings(absl::StrCat("passed over ", passed));
    }
    return found->path;
  }
  if (!absl::IsNotFound(found.status())) return found.status();
  if (!begun_with.empty() && VerifyCheckpoint(disk_, begun_with).ok()) {
    response.add_warnings(absl::StrCat(job,
                                       " took no checkpoint of its own: it goes on from the "
                                       "one that it began with, ",
                                       begun_with));
    return begun_with;
  }
  return absl::NotFoundError(absl::StrCat(
      job, " cannot go on: ", found.status().message(),
      "; submit its job file again. A job takes "
      "checkpoints with checkpoints { every_iterations: N }, or at capstan job stop --save"));
}

absl::StatusOr<RestoreFrom> JobSubmission::KeepInitialValues(AdmittedJob& job) {
  const std::vector<std::vector<float>> values = std::exchange(job.initial_values, {});
  const std::string folder = InitialCheckpointPath(data_folder_, job);
  const absl::Status written = WriteInitialCheckpoint(disk_, folder, job, values, state_->UnixMs());
  if (written.ok()) return FindRestore(disk_, folder, job);
  artifacts_->RemoveInitialWeights(job);
  return written;
}

}  // namespace capstan::scheduler
