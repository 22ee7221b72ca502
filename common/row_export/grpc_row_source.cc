#include "common/row_export/grpc_row_source.h"

#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"

namespace capstan {
namespace {

absl::Status Interrupted() { return absl::CancelledError("reading rows was interrupted"); }

}  // namespace

absl::StatusOr<v1::ScanRowsResponse> GrpcRowSource::ScanRows(const v1::ServerAddress& server,
                                                             const v1::ScanRowsRequest& request) {
  auto& stub = stubs_[{server.node_id(), server.address()}];
  if (stub == nullptr) {
    stub = v1::ParameterServer::NewStub(MakeChannel(server.address(), ChannelKind::kData,
                                                    options_.credentials,
                                                    {PeerRole::kServer, server.node_id()}));
  }
  grpc::ClientContext context;
  // It may ask the scheduler, which takes its time.
  if (options_.capability != nullptr) AddCapability(options_.capability(), &context);
  SetDeadline(context, options_.call_timeout);
  {
    absl::MutexLock lock(&mutex_);
    if (interrupted_) return Interrupted();
    in_flight_ = &context;
  }
  v1::ScanRowsResponse response;
  const grpc::Status status = stub->ScanRows(&context, request, &response);
  absl::MutexLock lock(&mutex_);
  in_flight_ = nullptr;
  if (interrupted_) return Interrupted();
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::Status GrpcRowSource::Pause(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&interrupted_), time);
  return interrupted_ ? Interrupted() : absl::OkStatus();
}

void GrpcRowSource::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
  if (in_flight_ != nullptr) in_flight_->TryCancel();
}

}  // namespace capstan
