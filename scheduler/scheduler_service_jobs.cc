// The calls that delete and annotate jobs, and the parts of other calls that stop a job or find the
// checkpoint that it restores.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/job/diagnostic.h"
#include "common/job/labels.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "scheduler/admitted_codec.h"
#include "scheduler/initial_checkpoint.h"
#include "scheduler/job_checkpoint.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/scheduler_service_answers.h"

namespace capstan::scheduler {

grpc::ServerUnaryReactor* SchedulerService::DeleteJob(grpc::CallbackServerContext* context,
                                                      const v1::DeleteJobRequest* request,
                                                      v1::DeleteJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  Actions actions;
  if (status.ok()) {
    if (const auto job = jobs_.find(request->job_id()); job != jobs_.end()) {
      response->set_output_directory(job->second->output_directory);
      response->set_output_host(hostname_);
    }
    status = core_->DeleteJob(request->job_id(), clock_->Now(), actions);
  }
  Commit(std::move(actions), {.answers = {{reactor, status, /*after_files=*/true}}});
  return reactor;
}

// ---------------------------------------------------------------- ends and beginnings

absl::Status SchedulerService::StopNow(const JobId& job, v1::StopJobResponse& response,
                                       Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(const JobState state, core_->StopJob(job, clock_->Now(), actions));
  response.set_state(EncodeJobState(state));
  return absl::OkStatus();
}

absl::Status SchedulerService::SaveAndStop(const JobId& job, v1::StopJobResponse& response,
                                           Actions& actions) {
  const Instant now = clock_->Now();
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId id, core_->SaveAndStopJob(job, now, actions));
  CAPSTAN_ASSIGN_OR_RETURN(const JobView view, core_->Job(job, now));
  response.set_state(EncodeJobState(view.state));
  response.set_asked_id(id.value());
  return absl::OkStatus();
}

absl::StatusOr<std::string> SchedulerService::FolderToRestore(const v1::SubmitJobRequest& request,
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
  return NewestCheckpointOf(request.resume_job(), response);
}

absl::StatusOr<std::string> SchedulerService::NewestCheckpointOf(const JobId& job,
                                                                 v1::SubmitJobResponse& response) {
  std::string folder, begun_with;
  CheckpointId floor;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_ASSIGN_OR_RETURN(const JobView view, core_->Job(job, clock_->Now()));
    if (!view.ended) {
      return absl::FailedPreconditionError(absl::StrCat(job, " has not ended: ", view.detail,
                                                        "; capstan job stop --save ", job,
                                                        " saves and stops it"));
    }
    folder = jobs_.at(job)->plan.checkpoint_folder;
    floor = jobs_.at(job)->plan.checkpoint_floor;
    // A checkpoint of initial weights is removed by now; a new job reads its weights again.
    const RestoreFrom* begun = core_->BeganWith(job);
    if (begun != nullptr && jobs_.at(job)->submitted.training().initial_weights().empty()) {
      begun_with = begun->folder;
    }
  }
  // The checkpoints of an ended job are never removed, so removal_mutex_ need not be held while all
  // their bytes are read.
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

absl::StatusOr<RestoreFrom> SchedulerService::KeepInitialValues(AdmittedJob& job) {
  const std::vector<std::vector<float>> values = std::exchange(job.initial_values, {});
  const std::string folder = InitialCheckpointPath(data_folder_, job);
  const absl::Status written =
      WriteInitialCheckpoint(disk_, folder, job, values, calendar_.UnixMs(clock_->Now()));
  if (written.ok()) return FindRestore(disk_, folder, job);
  RemoveInitialValues(job);
  return written;
}

void SchedulerService::RemoveInitialValues(const AdmittedJob& job) {
  if (job.submitted.training().initial_weights().empty()) return;
  const absl::Status removed =
      RemoveInitialCheckpoint(disk_, InitialCheckpointPath(data_folder_, job));
  if (removed.ok()) return;
  LogWarning({.job = job.plan.id}, "its initial weights stay: {}", std::string(removed.message()));
}

// ---------------------------------------------------------------- labels and notes

absl::Status SchedulerService::Annotate(const v1::AnnotateJobRequest& request,
                                        v1::AnnotateJobResponse& response,
                                        std::vector<StoreWrite>& writes) {
  const auto found = jobs_.find(request.job_id());
  if (found == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", request.job_id(), "\""));
  }
  auto job = std::make_shared<AdmittedJob>(*found->second);
  auto& labels = *job->submitted.mutable_labels();
  for (const auto& [key, value] : request.set_labels()) labels[key] = value;
  for (const std::string& key : request.remove_labels()) labels.erase(key);
  if (request.has_note()) job->submitted.set_note(request.note());
  std::vector<Diagnostic> wrong;
  ValidateLabels(labels, job->submitted.note(), FieldChecker("", &wrong));
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrJoin(wrong, "\n", [](std::string* out, const Diagnostic& diagnostic) {
          out->append(diagnostic.ToString());
        }));
  }
  *response.mutable_labels() = labels;
  response.set_note(job->submitted.note());
  writes.push_back(EncodeAdmitted(*job));
  found->second = std::move(job);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SchedulerService::AnnotateJob(grpc::CallbackServerContext* context,
                                                        const v1::AnnotateJobRequest* request,
                                                        v1::AnnotateJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  std::vector<StoreWrite> writes;
  if (status.ok()) status = Annotate(*request, *response, writes);
  Commit({}, {.answers = {{reactor, status}}}, std::move(writes));
  return reactor;
}

}  // namespace capstan::scheduler
