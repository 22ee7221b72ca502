// The calls of users about jobs.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/job/fields/diagnostic.h"
#include "common/job/spec/labels.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/security/job_access.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "scheduler/admission/admission.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/admission/job_capabilities.h"
#include "scheduler/codec/shared_codec.h"
#include "scheduler/codec/status_codec.h"
#include "scheduler/job_rights.h"
#include "scheduler/scheduler_service.h"

namespace capstan::scheduler {
namespace {

// Errors of both: those of StopJob.
absl::Status StopNow(const JobId& job, SchedulerCore& core, Instant now,
                     v1::StopJobResponse& response, Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(const JobState state, core.StopJob(job, now, actions));
  response.set_state(EncodeJobState(state));
  return absl::OkStatus();
}

absl::Status SaveAndStop(const JobId& job, SchedulerCore& core, Instant now,
                         v1::StopJobResponse& response, Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId id, core.SaveAndStopJob(job, now, actions));
  CAPSTAN_ASSIGN_OR_RETURN(const JobView view, core.Job(job, now));
  response.set_state(EncodeJobState(view.state));
  response.set_asked_id(id.value());
  return absl::OkStatus();
}

// Changes the labels and the note of a job. Changes nothing if it fails.
// Errors: those of AnnotateJob.
absl::Status Annotate(const v1::AnnotateJobRequest& request, const JobCaller& caller,
                      AdmittedJobs& jobs, v1::AnnotateJobResponse& response,
                      std::vector<StoreWrite>& writes) {
  CAPSTAN_RETURN_IF_ERROR(CheckMayChange(jobs, request.job_id(), caller));
  const auto found = jobs.find(request.job_id());
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

}  // namespace

grpc::ServerUnaryReactor* SchedulerService::PostAdmission(grpc::ServerUnaryReactor* reactor,
                                                          std::function<absl::Status()> work) {
  const bool posted = admission_.TryPost([reactor, work = std::move(work)] {
    const absl::Status status = work();
    if (!status.ok()) FinishWith(reactor, status);
  });
  if (posted) return reactor;
  return FinishWith(reactor, absl::ResourceExhaustedError(absl::StrCat(
                                 "more than ", kAdmissionsMax,
                                 " submissions, exports and recoveries wait; try again")));
}

grpc::ServerUnaryReactor* SchedulerService::SubmitJob(grpc::CallbackServerContext* context,
                                                      const v1::SubmitJobRequest* request,
                                                      v1::SubmitJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status status = CheckProtocolVersion(request->protocol_version()); !status.ok()) {
    return FinishWith(reactor, status);
  }
  return PostAdmission(reactor, [this, request, caller = CallerOf(*context), reactor, response] {
    return submission_.Submit(*request, caller, {reactor, response});
  });
}

grpc::ServerUnaryReactor* SchedulerService::ListJobs(grpc::CallbackServerContext* context,
                                                     const v1::ListJobsRequest*,
                                                     v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const JobCaller caller = CallerOf(*context);
  absl::MutexLock lock(&state_->mutex());
  for (const JobView& view : state_->core().Jobs(state_->Now())) {
    if (!MayRead(caller, state_->jobs().at(view.id)->plan.owner)) continue;
    *response->add_jobs() = state_->StatusOf(view, StatusDetail::kList);
  }
  state_->Commit({}, {{reactor, state_->Running(), /*after_files=*/true}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::GetJob(grpc::CallbackServerContext* context,
                                                   const v1::GetJobRequest* request,
                                                   v1::GetJobResponse* response) {
  return HoldUpTo(
      context, request->wait_limit_ms(), response,
      [this, request, caller = CallerOf(*context)](SchedulerCore& core, Ticket ticket,
                                                   absl::Duration limit, Actions& actions)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex()) {
            CAPSTAN_RETURN_IF_ERROR(CheckMayRead(state_->jobs(), request->job_id(), caller));
            return core.WatchJob(ticket, request->job_id(), request->after_revision(), limit,
                                 state_->Now(), actions);
          });
}

grpc::ServerUnaryReactor* SchedulerService::StopJob(grpc::CallbackServerContext* context,
                                                    const v1::StopJobRequest* request,
                                                    v1::StopJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const JobCaller caller = CallerOf(*context);
  absl::MutexLock lock(&state_->mutex());
  absl::Status status = state_->Running();
  if (status.ok()) status = CheckMayChange(state_->jobs(), request->job_id(), caller);
  Actions actions;
  if (status.ok()) {
    const auto stop = request->save() ? SaveAndStop : StopNow;
    status = stop(request->job_id(), state_->core(), state_->Now(), *response, actions);
  }
  state_->Commit(std::move(actions), {{reactor, status, /*after_files=*/true}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::DeleteJob(grpc::CallbackServerContext* context,
                                                      const v1::DeleteJobRequest* request,
                                                      v1::DeleteJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const JobCaller caller = CallerOf(*context);
  absl::MutexLock lock(&state_->mutex());
  absl::Status status = state_->Running();
  if (status.ok()) status = CheckMayChange(state_->jobs(), request->job_id(), caller);
  Actions actions;
  if (status.ok()) {
    const AdmittedJobs& jobs = state_->jobs();
    if (const auto job = jobs.find(request->job_id()); job != jobs.end()) {
      response->set_output_directory(job->second->output_directory);
      response->set_output_host(state_->hostname());
    }
    status = state_->core().DeleteJob(request->job_id(), state_->Now(), actions);
  }
  state_->Commit(std::move(actions), {{reactor, status, /*after_files=*/true}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::AnnotateJob(grpc::CallbackServerContext* context,
                                                        const v1::AnnotateJobRequest* request,
                                                        v1::AnnotateJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const JobCaller caller = CallerOf(*context);
  absl::MutexLock lock(&state_->mutex());
  absl::Status status = state_->Running();
  std::vector<StoreWrite> writes;
  if (status.ok()) status = Annotate(*request, caller, state_->jobs(), *response, writes);
  state_->Commit({}, {{reactor, status}}, std::move(writes));
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::ExportJob(grpc::CallbackServerContext* context,
                                                      const v1::ExportJobRequest* request,
                                                      v1::ExportJobResponse* response) {
  const Call<v1::ExportJobResponse> call{context->DefaultReactor(), response};
  return PostAdmission(call.reactor, [this, request, caller = CallerOf(*context), call] {
    return BeginExport(*request, caller, call);
  });
}

absl::Status SchedulerService::BeginExport(const v1::ExportJobRequest& request,
                                           const JobCaller& caller,
                                           const Call<v1::ExportJobResponse>& call) {
  const std::string& wished = request.folder();
  const std::string& host = state_->hostname();
  if (!wished.empty() && wished.front() != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("folder: \"", wished, "\", expected an absolute path on ", host));
  }
  if (!wished.empty() && allowed_ != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(capstan::Annotate(allowed_->Check(NameOf(caller), wished), "folder"));
  }
  std::string folder = wished;
  int64_t bytes = 0;
  {
    absl::MutexLock lock(&state_->mutex());
    CAPSTAN_RETURN_IF_ERROR(state_->Running());
    CAPSTAN_RETURN_IF_ERROR(CheckMayChange(state_->jobs(), request.job_id(), caller));
    CAPSTAN_ASSIGN_OR_RETURN(const JobView view,
                             state_->core().Job(request.job_id(), state_->Now()));
    if (!view.model_kept_until) {
      return absl::FailedPreconditionError(
          absl::StrCat(view.id, " keeps no model that could not be written: ", view.detail));
    }
    if (folder.empty()) folder = view.model_folder;
    bytes = ModelBytes(*state_->jobs().at(view.id));
  }
  const std::string field = absl::StrCat(host, host.empty() ? "folder" : ": folder");
  if (!wished.empty() && !request.replace_model()) {
    CAPSTAN_RETURN_IF_ERROR(CheckHoldsNoModel(field, folder));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckWritable(field, folder, bytes));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string one_name, OneName(field, folder));
  call.response->set_folder(folder);
  call.response->set_host(host);
  absl::MutexLock lock(&state_->mutex());
  CAPSTAN_RETURN_IF_ERROR(state_->Running());
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(
      state_->core().ExportJob(request.job_id(), wished, one_name, state_->Now(), actions));
  state_->Commit(std::move(actions), {{call.reactor}});
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SchedulerService::GetTables(grpc::CallbackServerContext* context,
                                                      const v1::GetTablesRequest* request,
                                                      v1::GetTablesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const JobCaller caller = CallerOf(*context);
  absl::MutexLock lock(&state_->mutex());
  absl::Status status = state_->Running();
  if (status.ok()) status = CheckMayRead(state_->jobs(), request->job_id(), caller);
  if (status.ok()) {
    const auto routing = state_->core().jobs().RoutingOf(request->job_id());
    status = routing.status();
    if (status.ok()) {
      for (const v1::TableSpec& table : state_->jobs().at(request->job_id())->tables) {
        *response->add_tables() = table;
      }
      EncodeRouting(**routing, *response->mutable_routing());
      response->set_capability(ReadCapability(*state_->jobs().at(request->job_id()), absl::Now()));
    }
  }
  state_->Commit({}, {{reactor, status}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::OpenSnapshot(grpc::CallbackServerContext* context,
                                                         const v1::OpenSnapshotRequest* request,
                                                         v1::OpenSnapshotResponse* response) {
  return HoldUpTo(
      context, request->wait_limit_ms(), response,
      [this, request, caller = CallerOf(*context), capability = CapabilityOf(*context)](
          SchedulerCore& core, Ticket ticket, absl::Duration limit,
          Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex()) {
        CAPSTAN_RETURN_IF_ERROR(CheckMayRead(state_->jobs(), request->job_id(), caller));
        CAPSTAN_RETURN_IF_ERROR(CheckReadsForTask(*state_->jobs().at(request->job_id()),
                                                  core.jobs(), caller, capability, absl::Now()));
        return core.OpenSnapshot(ticket, request->job_id(), request->reader(), limit, state_->Now(),
                                 actions);
      });
}

grpc::ServerUnaryReactor* SchedulerService::SaveCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::SaveCheckpointRequest* request,
                                                           v1::SaveCheckpointResponse* response) {
  return HoldUpTo(
      context, request->wait_limit_ms(), response,
      [this, request, caller = CallerOf(*context)](
          SchedulerCore& core, Ticket ticket, absl::Duration limit,
          Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex()) {
        CAPSTAN_RETURN_IF_ERROR(CheckMayChange(state_->jobs(), request->job_id(), caller));
        std::optional<CheckpointId> asked;
        if (request->asked_id() != 0) asked = CheckpointId(request->asked_id());
        return core.SaveCheckpoint(ticket, request->job_id(), asked, limit, state_->Now(), actions);
      });
}

grpc::ServerUnaryReactor* SchedulerService::ListRecoverable(grpc::CallbackServerContext* context,
                                                            const v1::ListRecoverableRequest*,
                                                            v1::ListRecoverableResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  recovery_.List({reactor, response});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::RecoverJob(grpc::CallbackServerContext* context,
                                                       const v1::RecoverJobRequest* request,
                                                       v1::RecoverJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status status = CheckProtocolVersion(request->protocol_version()); !status.ok()) {
    return FinishWith(reactor, status);
  }
  return PostAdmission(reactor, [this, request, reactor, response] {
    return recovery_.Recover(*request, {reactor, response});
  });
}

}  // namespace capstan::scheduler
