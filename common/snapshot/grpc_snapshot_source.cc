#include "common/snapshot/grpc_snapshot_source.h"

#include "absl/time/clock.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"

namespace capstan {

absl::StatusOr<v1::OpenSnapshotResponse> GrpcSnapshotSource::Open(
    const v1::OpenSnapshotRequest& request) {
  if (scheduler_ == nullptr) {
    scheduler_ = v1::Scheduler::NewStub(
        MakeChannel(options_.scheduler, ChannelKind::kControl, options_.credentials));
  }
  grpc::ClientContext context;
  SetDeadline(context, options_.call_timeout + absl::Milliseconds(request.wait_limit_ms()));
  if (options_.capability != nullptr) AddCapability(options_.capability(), &context);
  v1::OpenSnapshotResponse response;
  const grpc::Status status = scheduler_->OpenSnapshot(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  capability_.emplace(response.capability(),
                      [this, job = request.job_id()] { return AskForCapability(job); });
  return response;
}

std::string GrpcSnapshotSource::CapabilityToShow() {
  if (options_.capability != nullptr) return options_.capability();
  return capability_.has_value() ? capability_->Get(absl::Now()) : "";
}

absl::StatusOr<std::string> GrpcSnapshotSource::AskForCapability(const std::string& job_id) {
  grpc::ClientContext context;
  SetDeadline(context, options_.call_timeout);
  v1::GetTablesRequest request;
  request.set_job_id(job_id);
  v1::GetTablesResponse response;
  const grpc::Status status = scheduler_->GetTables(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response.capability();
}

v1::ParameterServer::Stub& GrpcSnapshotSource::StubOf(const v1::ServerAddress& server) {
  auto& stub = stubs_[{server.node_id(), server.address()}];
  if (stub == nullptr) {
    stub = v1::ParameterServer::NewStub(MakeChannel(server.address(), ChannelKind::kData,
                                                    options_.credentials,
                                                    {PeerRole::kServer, server.node_id()}));
  }
  return *stub;
}

absl::StatusOr<v1::ReadSnapshotResponse> GrpcSnapshotSource::Read(
    const v1::ServerAddress& server, const v1::ReadSnapshotRequest& request) {
  grpc::ClientContext context;
  AddCapability(CapabilityToShow(), &context);  // It may ask the scheduler, for as long.
  SetDeadline(context, options_.call_timeout);
  v1::ReadSnapshotResponse response;
  const grpc::Status status = StubOf(server).ReadSnapshot(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::Status GrpcSnapshotSource::Close(const v1::ServerAddress& server,
                                       const v1::CloseSnapshotRequest& request) {
  grpc::ClientContext context;
  AddCapability(CapabilityToShow(), &context);
  SetDeadline(context, options_.close_timeout);
  v1::CloseSnapshotResponse response;
  return FromGrpcStatus(StubOf(server).CloseSnapshot(&context, request, &response));
}

absl::Status GrpcSnapshotSource::Pause(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&interrupted_), time);
  return interrupted_ ? absl::CancelledError("reading a snapshot was interrupted")
                      : absl::OkStatus();
}

void GrpcSnapshotSource::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
}

}  // namespace capstan
