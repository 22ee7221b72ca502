// The calls of the service: each decodes its request, takes one step of the core, and passes the
// result to Commit.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/net/grpc_status.h"
#include "common/process/random_hex.h"
#include "common/status/status_macros.h"
#include "scheduler/admitted_codec.h"
#include "scheduler/cluster_id.h"
#include "scheduler/cut_reactor.h"
#include "scheduler/job_checkpoint.h"
#include "scheduler/node_codec.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/scheduler_service_answers.h"
#include "scheduler/shared_codec.h"
#include "scheduler/task_codec.h"

namespace capstan::scheduler {
namespace {

constexpr absl::Duration kWaitLimitMax = absl::Minutes(1);

grpc::ServerUnaryReactor* FinishWith(grpc::ServerUnaryReactor* reactor,
                                     const absl::Status& status) {
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::StatusOr<absl::Duration> CheckWaitLimit(int32_t wait_limit_ms) {
  const absl::Duration limit = absl::Milliseconds(wait_limit_ms);
  if (limit >= absl::ZeroDuration() && limit <= kWaitLimitMax) return limit;
  return absl::InvalidArgumentError(absl::StrCat("wait_limit_ms: ", wait_limit_ms,
                                                 ", expected 0 to ",
                                                 absl::ToInt64Milliseconds(kWaitLimitMax)));
}

}  // namespace

// ---------------------------------------------------------------- daemons and tasks

grpc::ServerUnaryReactor* SchedulerService::Register(grpc::CallbackServerContext* context,
                                                     const v1::RegisterRequest* request,
                                                     v1::RegisterResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<NodeInfo> info = DecodeNodeInfo(*request);
  if (!info.ok()) return FinishWith(reactor, info.status());
  if (const absl::Status logs = CheckKeptLogs(*request); !logs.ok()) {
    return FinishWith(reactor, logs);
  }
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  Actions actions;
  std::vector<StoreWrite> orphans;
  if (status.ok()) {
    const auto registration = core_->Register(*info, clock_->Now(), actions);
    status = registration.status();
    if (status.ok()) {
      EncodeRegistration(*registration, *response);
      absl::btree_set<std::string> known;
      for (const auto& [id, job] : jobs_) known.insert(job->plan.unique_id);
      orphans = orphans_.Note(registration->node, *request, info->stored, known);
    }
  }
  Commit(std::move(actions), {.answers = {{reactor, status}}}, std::move(orphans));
  return reactor;
}

// A daemon may cancel a call and send another one at once (NodeAgent::Wake), and the two may arrive
// in the wrong order. Then the second call has answered the first one, so nothing was cut.
void SchedulerService::SyncCut(Ticket ticket, const NodeId& node, Incarnation incarnation) {
  absl::MutexLock lock(&mutex_);
  if (!calls_.Has(ticket)) return;
  Actions actions;
  core_->OnSyncBroken(node, incarnation, clock_->Now(), actions);
  Commit(std::move(actions), {});
}

void SchedulerService::TieCut(Ticket ticket, const NodeId& node, Incarnation incarnation) {
  absl::MutexLock lock(&mutex_);
  const auto tie = ties_.find(node);
  if (tie == ties_.end() || tie->second.ticket != ticket) return;
  Answers answers;
  answers.answers.push_back({tie->second.reactor, absl::CancelledError("the tie is cut")});
  ties_.erase(tie);
  Actions actions;
  core_->OnSyncBroken(node, incarnation, clock_->Now(), actions);
  Commit(std::move(actions), std::move(answers));
}

grpc::ServerUnaryReactor* SchedulerService::HoldTie(grpc::CallbackServerContext* context,
                                                    const v1::HoldTieRequest* request,
                                                    v1::HoldTieResponse*) {
  const NodeId node = request->node_id();
  const Incarnation life(request->incarnation());
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  if (status.ok() && !IsLive(node, life)) {
    status = absl::NotFoundError(
        absl::StrCat("no live node \"", node, "\" of incarnation ", life.value(), " to tie"));
  }
  if (!status.ok()) return FinishWith(context->DefaultReactor(), status);
  const Ticket ticket = NextTicket();
  grpc::ServerUnaryReactor* reactor =
      CutReactor::New([this, ticket, node, life] { TieCut(ticket, node, life); });
  const Tie before = std::exchange(ties_[node], {ticket, life, reactor});
  if (before.reactor != nullptr) {
    FinishWith(before.reactor, absl::CancelledError("the node has tied itself anew"));
  }
  return reactor;
}

bool SchedulerService::IsLive(const NodeId& node, Incarnation life) const {
  const std::vector<NodeView> nodes = core_->Nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeView& each) {
    return each.alive && each.id == node && each.incarnation == life;
  });
}

void SchedulerService::EndTie(const NodeId& node, Incarnation life, Answers& answers) {
  const auto tie = ties_.find(node);
  if (tie == ties_.end() || tie->second.life != life) return;
  answers.answers.push_back({tie->second.reactor, absl::AbortedError("the node's life is over")});
  ties_.erase(tie);
}

template <typename Ask>
void SchedulerService::Hold(Ticket ticket, const HeldCall& call, const Ask& ask) {
  absl::Status status = Running();
  Actions actions;
  Answers answers;
  if (status.ok()) {
    calls_.Add(ticket, call);
    status = ask(actions);
  }
  if (!status.ok()) {
    calls_.Take(ticket);
    answers.answers.push_back({call.reactor, status});
  }
  Commit(std::move(actions), std::move(answers));
}

grpc::ServerUnaryReactor* SchedulerService::SyncNode(grpc::CallbackServerContext* context,
                                                     const v1::SyncNodeRequest* request,
                                                     v1::SyncNodeResponse* response) {
  const absl::StatusOr<NodeReport> report = DecodeNodeReport(*request);
  if (!report.ok()) return FinishWith(context->DefaultReactor(), report.status());
  absl::MutexLock lock(&mutex_);
  const Ticket ticket = NextTicket();
  grpc::ServerUnaryReactor* reactor =
      CutReactor::New([this, ticket, node = report->node, life = report->incarnation] {
        SyncCut(ticket, node, life);
      });
  Hold(ticket, {reactor, response}, [&](Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return core_->SyncNode(ticket, *report, clock_->Now(), actions);
  });
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::SyncTask(grpc::CallbackServerContext* context,
                                                     const v1::SyncTaskRequest* request,
                                                     v1::SyncTaskResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<TaskReport> report = DecodeTaskReport(*request);
  if (!report.ok()) return FinishWith(reactor, report.status());
  absl::MutexLock lock(&mutex_);
  const Ticket ticket = NextTicket();
  Hold(ticket, {reactor, response}, [&](Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return core_->SyncTask(ticket, *report, clock_->Now(), actions);
  });
  return reactor;
}

// ---------------------------------------------------------------- users

grpc::ServerUnaryReactor* SchedulerService::SubmitJob(grpc::CallbackServerContext* context,
                                                      const v1::SubmitJobRequest* request,
                                                      v1::SubmitJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status status = CheckProtocolVersion(request->protocol_version()); !status.ok()) {
    return FinishWith(reactor, status);
  }
  const Call<v1::SubmitJobResponse> call{reactor, response};
  if (admission_.TryPost([this, request, call] { Admit(*request, call); })) return reactor;
  return FinishWith(
      reactor, absl::ResourceExhaustedError(absl::StrCat("more than ", kAdmissionsMax,
                                                         " jobs wait to be checked; try again")));
}

void SchedulerService::Admit(const v1::SubmitJobRequest& request,
                             const Call<v1::SubmitJobResponse>& call) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
  }
  if (status.ok()) {
    if (AnswerRepeated(request.submission_id(), call)) return;
    status = Check(request, call);
  }
  if (!status.ok()) FinishWith(call.reactor, status);
}

// One thread admits all submissions, so the first call has ended when its repetition is checked.
bool SchedulerService::AnswerRepeated(uint64_t submission_id,
                                      const Call<v1::SubmitJobResponse>& call) {
  absl::MutexLock lock(&mutex_);
  const JobId* made = core_->JobOfSubmission(submission_id);
  if (made == nullptr) return false;
  call.response->set_job_id(*made);
  Commit({}, {.answers = {{call.reactor, Running()}}});
  return true;
}

absl::Status SchedulerService::Check(const v1::SubmitJobRequest& request,
                                     const Call<v1::SubmitJobResponse>& call) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string folder, FolderToRestore(request, *call.response));
  CAPSTAN_ASSIGN_OR_RETURN(AdmittedJob job, AdmitJob(request.spec()));
  job.plan.submission_id = request.submission_id();
  const OldModel old_model = request.replace_model() ? OldModel::kReplace : OldModel::kKeep;
  if (folder.empty()) return Submit(std::move(job), old_model, std::nullopt, call);
  absl::MutexLock pinning(&removal_mutex_);
  CAPSTAN_ASSIGN_OR_RETURN(RestoreFrom restore, FindRestore(disk_, folder, job));
  v1::RestoredPoint& restored = *call.response->mutable_restored();
  restored.set_folder(restore.folder);
  restored.set_checkpoint_id(restore.id.value());
  restored.set_epoch(restore.at.epoch.value() + 1);
  restored.set_iteration(restore.at.iteration.value());
  return Submit(std::move(job), old_model, std::move(restore), call);
}

absl::Status SchedulerService::Submit(AdmittedJob job, OldModel old_model,
                                      std::optional<RestoreFrom> restore,
                                      const Call<v1::SubmitJobResponse>& call) {
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(Running());
    number = core_->TakeJobNumber();
  }
  CAPSTAN_RETURN_IF_ERROR(NameJob(number, data_folder_, disk_, old_model, job));
  job.plan.unique_id = absl::StrCat(cluster_id_, "-", RandomHex());
  if (!job.initial_values.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(restore, KeepInitialValues(job));
  }
  auto admitted = std::make_shared<const AdmittedJob>(std::move(job));
  const absl::Status entered = Enter(admitted, restore, call);
  if (!entered.ok()) RemoveInitialValues(*admitted);
  return entered;
}

absl::Status SchedulerService::Enter(const std::shared_ptr<const AdmittedJob>& admitted,
                                     const std::optional<RestoreFrom>& restore,
                                     const Call<v1::SubmitJobResponse>& call) {
  const JobId& id = admitted->plan.id;
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(Running());
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(core_->SubmitJob(admitted->plan, clock_->Now(), actions, restore));
  jobs_[id] = admitted;
  call.response->set_job_id(id);
  for (const std::string& warning : admitted->warnings) call.response->add_warnings(warning);
  const std::string too_small = core_->WhyTooSmall(id, clock_->Now());
  if (!too_small.empty()) {
    call.response->add_warnings(absl::StrCat("the cluster is too small for this job: ", too_small));
  }
  Commit(std::move(actions), {.answers = {{call.reactor}}}, {EncodeAdmitted(*admitted)});
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SchedulerService::ListJobs(grpc::CallbackServerContext* context,
                                                     const v1::ListJobsRequest*,
                                                     v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  for (const JobView& view : core_->Jobs(clock_->Now())) {
    *response->add_jobs() = StatusOf(view, StatusDetail::kList);
  }
  Commit({}, {.answers = {{reactor, Running(), /*after_files=*/true}}});
  return reactor;
}

template <typename Request, typename Ask>
grpc::ServerUnaryReactor* SchedulerService::HoldUpTo(grpc::CallbackServerContext* context,
                                                     const Request& request,
                                                     google::protobuf::Message* response,
                                                     const Ask& ask) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<absl::Duration> limit = CheckWaitLimit(request.wait_limit_ms());
  if (!limit.ok()) return FinishWith(reactor, limit.status());
  absl::MutexLock lock(&mutex_);
  const Ticket ticket = NextTicket();
  Hold(ticket, {reactor, response}, [&](Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ask(ticket, *limit, actions);
  });
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::GetJob(grpc::CallbackServerContext* context,
                                                   const v1::GetJobRequest* request,
                                                   v1::GetJobResponse* response) {
  return HoldUpTo(context, *request, response,
                  [this, request](Ticket ticket, absl::Duration limit, Actions& actions)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                        return core_->WatchJob(ticket, request->job_id(), request->after_revision(),
                                               limit, clock_->Now(), actions);
                      });
}

grpc::ServerUnaryReactor* SchedulerService::StopJob(grpc::CallbackServerContext* context,
                                                    const v1::StopJobRequest* request,
                                                    v1::StopJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  Actions actions;
  if (status.ok()) {
    status = request->save() ? SaveAndStop(request->job_id(), *response, actions)
                             : StopNow(request->job_id(), *response, actions);
  }
  Commit(std::move(actions), {.answers = {{reactor, status, /*after_files=*/true}}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::ExportJob(grpc::CallbackServerContext* context,
                                                      const v1::ExportJobRequest* request,
                                                      v1::ExportJobResponse* response) {
  const Call<v1::ExportJobResponse> call{context->DefaultReactor(), response};
  const bool posted = admission_.TryPost([this, request, call] {
    const absl::Status status = BeginExport(*request, call);
    if (!status.ok()) FinishWith(call.reactor, status);
  });
  if (posted) return call.reactor;
  return FinishWith(call.reactor, absl::ResourceExhaustedError("too many jobs wait to be checked; "
                                                               "try again"));
}

absl::Status SchedulerService::BeginExport(const v1::ExportJobRequest& request,
                                           const Call<v1::ExportJobResponse>& call) {
  const std::string& wished = request.folder();
  if (!wished.empty() && wished.front() != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("folder: \"", wished, "\", expected an absolute path on ", hostname_));
  }
  std::string folder = wished;
  int64_t bytes = 0;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(Running());
    CAPSTAN_ASSIGN_OR_RETURN(const JobView view, core_->Job(request.job_id(), clock_->Now()));
    if (!view.model_kept_until) {
      return absl::FailedPreconditionError(
          absl::StrCat(view.id, " keeps no model that could not be written: ", view.detail));
    }
    if (folder.empty()) folder = view.model_folder;
    bytes = ModelBytes(*jobs_.at(view.id));
  }
  const std::string field = absl::StrCat(hostname_, hostname_.empty() ? "folder" : ": folder");
  if (!wished.empty() && !request.replace_model()) {
    CAPSTAN_RETURN_IF_ERROR(CheckHoldsNoModel(field, folder));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckWritable(field, folder, bytes));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string one_name, OneName(field, folder));
  call.response->set_folder(folder);
  call.response->set_host(hostname_);
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(Running());
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(
      core_->ExportJob(request.job_id(), wished, one_name, clock_->Now(), actions));
  Commit(std::move(actions), {.answers = {{call.reactor}}});
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SchedulerService::DrainNode(grpc::CallbackServerContext* context,
                                                      const v1::DrainNodeRequest* request,
                                                      v1::DrainNodeResponse* response) {
  return HoldUpTo(context, *request, response,
                  [this, request](Ticket ticket, absl::Duration limit, Actions& actions)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                        return core_->DrainNode(ticket, request->node_id(), request->cancel(),
                                                limit, clock_->Now(), actions);
                      });
}

grpc::ServerUnaryReactor* SchedulerService::ListNodes(grpc::CallbackServerContext* context,
                                                      const v1::ListNodesRequest*,
                                                      v1::ListNodesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  const Instant now = clock_->Now();
  for (const NodeView& view : core_->Nodes()) EncodeNodeStatus(view, now, *response->add_nodes());
  Commit({}, {.answers = {{reactor, Running()}}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::GetTables(grpc::CallbackServerContext* context,
                                                      const v1::GetTablesRequest* request,
                                                      v1::GetTablesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  if (status.ok()) {
    const auto routing = core_->RoutingOf(request->job_id());
    status = routing.status();
    if (status.ok()) {
      for (const v1::TableSpec& table : jobs_.at(request->job_id())->tables) {
        *response->add_tables() = table;
      }
      EncodeRouting(**routing, *response->mutable_routing());
    }
  }
  Commit({}, {.answers = {{reactor, status}}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::OpenSnapshot(grpc::CallbackServerContext* context,
                                                         const v1::OpenSnapshotRequest* request,
                                                         v1::OpenSnapshotResponse* response) {
  return HoldUpTo(context, *request, response,
                  [this, request](Ticket ticket, absl::Duration limit, Actions& actions)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                        return core_->OpenSnapshot(ticket, request->job_id(), request->reader(),
                                                   limit, clock_->Now(), actions);
                      });
}

grpc::ServerUnaryReactor* SchedulerService::SaveCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::SaveCheckpointRequest* request,
                                                           v1::SaveCheckpointResponse* response) {
  return HoldUpTo(
      context, *request, response,
      [this, request](Ticket ticket, absl::Duration limit,
                      Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const Instant now = clock_->Now();
        const CheckpointId asked(request->asked_id());
        return asked == CheckpointId(0)
                   ? core_->SaveCheckpoint(ticket, request->job_id(), limit, now, actions)
                   : core_->AwaitCheckpoint(ticket, request->job_id(), asked, limit, now, actions);
      });
}

}  // namespace capstan::scheduler
