#include "server/rpc/parameter_service.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/net/frame/frame.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/cord_buffer.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/observability/log.h"
#include "common/security/capability.h"
#include "common/security/certificates/identity.h"
#include "common/status/status_macros.h"
#include "common/wire/message_checksum.h"
#include "common/wire/tensor_message.h"
#include "server/replication/install_stream.h"
#include "server/replication/replica_checks.h"
#include "server/store/tables/add_counts.h"

namespace capstan::server {
namespace {

grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context,
                                    const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// A call that may wait in a HeldJob. gRPC calls OnCancel and OnDone only after the handler that
// made it has returned, and OnDone last of all; it deletes itself there.
class WaitingCall : public grpc::ServerUnaryReactor {
 public:
  explicit WaitingCall(std::shared_ptr<HeldJob> job) : job_(std::move(job)) {}

  HeldJob& job() { return *job_; }
  // Called in the handler. After it only the id may be used: the call may have ended already.
  void SetWaits(std::optional<HeldJob::CallId> id) { waits_ = id; }

  void OnCancel() override {
    if (waits_.has_value()) job_->calls().Cancel(*waits_);
  }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<HeldJob> job_;  // Shared with HeldJobs, which may drop it meanwhile.
  std::optional<HeldJob::CallId> waits_;
};

// Counts one call from its arrival on.
struct UnaryArrival {
  explicit UnaryArrival(MethodMetrics* of) : metrics(of), begin(of->Begin(TransportKind::kGrpc)) {}
  // Ends the call with an error, before it has become a call of a job.
  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context,
                                   const absl::Status& status) const {
    metrics->End(begin, status.ok());
    return FinishNow(context, status);
  }

  MethodMetrics* metrics;
  int64_t begin;
};

// A call with values or records. The order of gRPC's calls is as for WaitingCall.
class ValuesCall final : public grpc::ServerUnaryReactor {
 public:
  // Takes the request from gRPC, so that it does not stay for as long as the call waits.
  static absl::Cord Take(const grpc::ByteBuffer* request) {
    absl::Cord bytes = ToCord(*request);
    const_cast<grpc::ByteBuffer*>(request)->Clear();
    return bytes;
  }
  void SetCancel(ValueCalls::Cancel cancel) { cancel_ = std::move(cancel); }

  template <typename Response>
  void End(absl::StatusOr<Response> answer, grpc::ByteBuffer* response) {
    if (answer.ok()) {
      Seal(&*answer);
      *response = ToByteBuffer(absl::Cord(answer->SerializeAsString()));
    }
    Finish(ToGrpcStatus(answer.status()));
  }
  void OnCancel() override {
    if (cancel_ != nullptr) cancel_();
  }
  void OnDone() override { delete this; }

 private:
  ValueCalls::Cancel cancel_;
};

}  // namespace

// They are defined here because they instantiate all of ParameterMethods, which takes seconds in
// each file that does it.
ParameterService::ParameterService(HeldJobs* jobs, CallRights::Options rights)
    : jobs_(jobs), rights_(jobs, std::move(rights)) {}
ParameterService::~ParameterService() = default;

grpc::ServerUnaryReactor* ParameterService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  absl::StatusOr<v1::PushRequest> push = ParsePush(ValuesCall::Take(request));
  const std::string capability = CapabilityOf(*context);
  auto* call = new ValuesCall;
  call->SetCancel(
      calls_.Push(TransportKind::kGrpc, {.bytes = capability},
                  push.ok() ? absl::StatusOr<PushMessage>(Detach(*std::move(push))) : push.status(),
                  [call, response](const absl::StatusOr<v1::PushResponse>& answer) {
                    call->End(answer, response);
                  }));
  return call;
}

absl::StatusOr<v1::PullRequest> ParameterService::ReadablePull(const absl::Cord& request,
                                                               const Caller& caller) const {
  CAPSTAN_ASSIGN_OR_RETURN(v1::PullRequest pull, ParsePull(request));
  CAPSTAN_RETURN_IF_ERROR(jobs_->FindToRead(pull.caller().job_id(), caller).status());
  return pull;
}

grpc::ServerUnaryReactor* ParameterService::Pull(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  const std::string capability = CapabilityOf(*context);
  auto* call = new ValuesCall;
  call->SetCancel(calls_.Pull(TransportKind::kGrpc, {.bytes = capability},
                              ReadablePull(ValuesCall::Take(request), CallerOf(*context)),
                              [call, response](absl::StatusOr<PullAnswer> answer) {
                                if (!answer.ok())
                                  return call->End<v1::PullResponse>(answer.status(), response);
                                call->End<v1::PullResponse>(Attach(*std::move(answer)), response);
                              }));
  return call;
}

grpc::ServerUnaryReactor* ParameterService::ScanRows(grpc::CallbackServerContext* context,
                                                     const v1::ScanRowsRequest* request,
                                                     v1::ScanRowsResponse* response) {
  const UnaryArrival arrival(&metrics_.scan_rows);
  absl::StatusOr<std::shared_ptr<HeldJob>> job = FindJob(
      *context, request->caller().job_id(), UseOf(request->caller(), CapabilityUse::Access::kRead));
  if (!job.ok()) return arrival.Refuse(context, job.status());
  auto* call = new WaitingCall(*std::move(job));
  call->SetWaits(call->job().calls().ScanRows(
      *request, response, [call, arrival, response](const absl::Status& status) {
        if (status.ok()) {
          arrival.metrics->CountValues(static_cast<int64_t>(response->rows().size()), 0);
        }
        arrival.metrics->End(arrival.begin, status.ok());
        call->Finish(ToGrpcStatus(status));
      }));
  arrival.metrics->CarriedOut(arrival.begin);
  return call;
}

grpc::ServerUnaryReactor* ParameterService::ReadSnapshot(grpc::CallbackServerContext* context,
                                                         const v1::ReadSnapshotRequest* request,
                                                         v1::ReadSnapshotResponse* response) {
  const UnaryArrival arrival(&metrics_.read_snapshot);
  absl::StatusOr<std::shared_ptr<HeldJob>> job = FindJob(*context, request->job_id(), {});
  if (!job.ok()) return arrival.Refuse(context, job.status());
  auto* call = new WaitingCall(*std::move(job));
  call->SetWaits(call->job().snapshot_calls().Read(
      *request, response, [call, arrival, response](const absl::Status& status) {
        if (status.ok()) {
          arrival.metrics->CountValues(static_cast<int64_t>(response->values().size()), 0);
        }
        arrival.metrics->End(arrival.begin, status.ok());
        call->Finish(ToGrpcStatus(status));
      }));
  arrival.metrics->CarriedOut(arrival.begin);
  return call;
}

grpc::ServerUnaryReactor* ParameterService::CloseSnapshot(grpc::CallbackServerContext* context,
                                                          const v1::CloseSnapshotRequest* request,
                                                          v1::CloseSnapshotResponse*) {
  const absl::StatusOr<std::shared_ptr<HeldJob>> job = FindJob(*context, request->job_id(), {});
  if (job.ok()) (*job)->snapshot_calls().Close(*request);
  // A job that is not here has no snapshot either.
  return FinishNow(context, absl::IsNotFound(job.status()) ? absl::OkStatus() : job.status());
}

grpc::ServerUnaryReactor* ParameterService::Replicate(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  const absl::StatusOr<v1::ReplicateBatch> batch = ParseBatch(ValuesCall::Take(request));
  auto* call = new ValuesCall;  // It ends by itself and is never cancelled.
  if (!batch.ok()) {
    if (absl::IsDataLoss(batch.status())) ++damaged_messages_;
    call->End<v1::ReplicateBatchAnswer>(batch.status(), response);
    return call;
  }
  if (const absl::Status status = CheckArrived(*batch); !status.ok()) {
    ++damaged_messages_;
    const std::string sender = batch->messages().empty() ? "" : batch->messages(0).sender();
    LogWarning({.job = JobOf(*batch)}, "from {}: {}", sender, std::string(status.message()));
    call->End<v1::ReplicateBatchAnswer>(status, response);
    return call;
  }
  ReplicateBatch(*batch, CallerOf(*context),
                 [call, response](absl::StatusOr<v1::ReplicateBatchAnswer> answer) {
                   call->End(std::move(answer), response);
                 });
  return call;
}

DataServer::Cancel ParameterService::StartDataCall(const VerifiedCapability* verified,
                                                   const Caller& caller, DataMethod method,
                                                   const absl::Cord& request,
                                                   DataServer::Done done) {
  const ShownCapability shown{.verified = verified};
  switch (method) {
    case DataMethod::kPush:
      return calls_.Push(TransportKind::kDataConnection, shown, DecodePush(request),
                         [done = std::move(done)](const absl::StatusOr<v1::PushResponse>& answer) {
                           if (!answer.ok()) return done(answer.status());
                           done(absl::Cord(answer->SerializeAsString()));
                         });
    case DataMethod::kPull:
      return calls_.Pull(TransportKind::kDataConnection, shown, ParsePull(request),
                         [done = std::move(done)](const absl::StatusOr<PullAnswer>& answer) {
                           if (!answer.ok()) return done(answer.status());
                           done(Encode(*answer));
                         });
    case DataMethod::kReplicate: {
      const absl::StatusOr<v1::ReplicateBatch> batch = ParseBatch(request);
      if (!batch.ok()) return done(batch.status()), nullptr;
      ReplicateBatch(
          *batch, caller,
          [done = std::move(done)](const absl::StatusOr<v1::ReplicateBatchAnswer>& answer) {
            if (!answer.ok()) return done(answer.status());
            done(absl::Cord(answer->SerializeAsString()));
          });
      return nullptr;
    }
  }
  done(absl::UnimplementedError(absl::StrCat("method ", static_cast<int>(method))));
  return nullptr;
}

void ParameterService::ReplicateBatch(const v1::ReplicateBatch& batch, const Caller& caller,
                                      ReplicateDone done) {
  for (const v1::ReplicateRequest& message : batch.messages()) {
    const absl::Status sent = CheckSender(message, caller);
    if (!sent.ok()) return done(sent);
  }
  const absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(JobOf(batch));
  if (!job.ok()) return done(job.status());
  auto answer = std::make_shared<v1::ReplicateBatchAnswer>();  // The job shares it meanwhile.
  (*job)->replica_calls().ReplicateBatch(
      batch, answer.get(), [answer, done = std::move(done)](const absl::Status& status) {
        if (!status.ok()) return done(status);
        done(std::move(*answer));
      });
}

grpc::ServerReadReactor<v1::InstallPart>* ParameterService::Install(
    grpc::CallbackServerContext* context, v1::ReplicateResponse* response) {
  return InstallStream::Open(jobs_, CallerOf(*context), response, &damaged_messages_);
}

grpc::ServerWriteReactor<v1::ShareMemoryResponse>* ParameterService::ShareMemory(
    grpc::CallbackServerContext* context, const v1::ShareMemoryRequest* request) {
  return streams_.Open(*request, OwnerOf(*context));
}

absl::StatusOr<std::optional<SegmentOwner>> ParameterService::OwnerOf(
    const grpc::CallbackServerContext& context) const {
  const auto verified = rights_.Verify(CapabilityOf(context));
  // kUnavailable: the caller offers its memory again later.
  if (absl::IsNotFound(verified.status()))
    return absl::UnavailableError(verified.status().message());
  if (!verified.ok()) return verified.status();
  if (*verified == nullptr) return std::optional<SegmentOwner>();
  const Capability& capability = (*verified)->capability;
  // The capability of a reader names no task.
  CAPSTAN_RETURN_IF_ERROR(CheckAllows(capability, {.access = CapabilityUse::Access::kWrite,
                                                   .rank = capability.rank,
                                                   .incarnation = capability.incarnation}));
  return SegmentOwner{
      .job = capability.job, .rank = capability.rank, .incarnation = capability.incarnation};
}

absl::StatusOr<std::shared_ptr<HeldJob>> ParameterService::FindJob(
    const grpc::CallbackServerContext& context, const JobId& job, const CapabilityUse& use) const {
  CAPSTAN_RETURN_IF_ERROR(jobs_->FindToRead(job, CallerOf(context)).status());
  const std::string capability = CapabilityOf(context);
  return rights_.Find(job, {.bytes = capability}, use);
}

grpc::ServerUnaryReactor* ParameterService::OpenDataConnections(
    grpc::CallbackServerContext* context, const v1::OpenDataConnectionsRequest*,
    v1::OpenDataConnectionsResponse* response) {
  if (data_server_ == nullptr) {
    return FinishNow(context, absl::UnimplementedError("this server has no data connections"));
  }
  // A server sends records to replicas over them, and has no capability.
  const std::optional<Identity> caller = CallerOf(*context);
  if (!caller.has_value() || caller->role != PeerRole::kServer) {
    const absl::Status status = rights_.Verify(CapabilityOf(*context)).status();
    if (!status.ok()) return FinishNow(context, status);
  }
  response->set_host(data_host_);
  response->set_port(data_server_->port());
  response->set_token(data_server_->token());
  response->set_push_connections(push_connections_);
  return FinishNow(context, absl::OkStatus());
}

absl::Status ParameterService::ListenForData(const std::string& listen, const std::string& host,
                                             int push_connections, const Credentials* credentials,
                                             AuditLog* audit) {
  CAPSTAN_ASSIGN_OR_RETURN(
      data_server_,
      DataServer::Start(
          {.listen = listen,
           .handler = nullptr,
           .admit = [this](const std::string& capability,
                           const Caller& caller) { return AdmitConnection(capability, caller); },
           .credentials = credentials,
           .audit = audit}));
  data_host_ = host;
  push_connections_ = push_connections;
  return absl::OkStatus();
}

absl::StatusOr<DataServer::Admitted> ParameterService::AdmitConnection(
    const std::string& capability, const Caller& caller) {
  // The connection of a primary has no capability, and its calls are judged accordingly.
  std::shared_ptr<const VerifiedCapability> verified;
  if (!capability.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(verified, rights_.Verify(capability));
  }
  DataServer::Admitted admitted;
  if (verified != nullptr) admitted.until = verified->capability.expiry;
  admitted.handler = [this, verified, caller](DataMethod method, const absl::Cord& request,
                                              DataServer::Done done) {
    return StartDataCall(verified.get(), caller, method, request, std::move(done));
  };
  return admitted;
}

void ParameterService::CloseDataConnections() {
  if (data_server_ != nullptr) data_server_->Stop();
}

grpc::ServerUnaryReactor* ParameterService::GetRouting(grpc::CallbackServerContext* context,
                                                       const v1::GetRoutingRequest* request,
                                                       v1::GetRoutingResponse* response) {
  const absl::StatusOr<std::shared_ptr<HeldJob>> job =
      jobs_->FindToRead(request->job_id(), CallerOf(*context));
  if (!job.ok()) return FinishNow(context, job.status());
  *response->mutable_routing() = (*job)->assignment().routing();
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ParameterService::DescribeTraffic(grpc::CallbackServerContext* context,
                                                            const v1::DescribeTrafficRequest*,
                                                            v1::DescribeTrafficResponse* response) {
  for (const MethodMetrics* method :
       {&metrics_.push, &metrics_.pull, &metrics_.scan_rows, &metrics_.read_snapshot}) {
    *response->add_methods() = method->Describe();
  }
  response->set_shared_segments(static_cast<int64_t>(segments_.size()));
  int64_t damaged = damaged_messages_;
  if (data_server_ != nullptr) {
    response->set_data_connections(data_server_->connections());
    damaged += data_server_->damaged_frames();
  }
  response->set_damaged_messages(damaged);
  for (const std::shared_ptr<HeldJob>& job : jobs_->All()) {
    AddCounts(job->calls().key_list_counts(), response->mutable_key_lists());
  }
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ParameterService::DescribeTables(grpc::CallbackServerContext* context,
                                                           const v1::DescribeTablesRequest* request,
                                                           v1::DescribeTablesResponse* response) {
  std::vector<std::shared_ptr<HeldJob>> jobs;
  if (request->job_id().empty()) {
    jobs = jobs_->AllToRead(CallerOf(*context));
  } else {
    absl::StatusOr<std::shared_ptr<HeldJob>> job =
        jobs_->FindToRead(request->job_id(), CallerOf(*context));
    if (!job.ok()) return FinishNow(context, job.status());
    jobs.push_back(*std::move(job));
  }
  for (const std::shared_ptr<HeldJob>& job : jobs) {
    for (v1::HeldTable& table : job->Describe()) *response->add_tables() = std::move(table);
  }
  return FinishNow(context, absl::OkStatus());
}

}  // namespace capstan::server
