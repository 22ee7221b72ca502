#include "server/service/grpc_replica_transport.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "common/net/channel.h"
#include "common/net/grpc_status.h"

namespace capstan::server {
namespace {

constexpr int64_t kBytesPerSecond = 16 << 20;

absl::Duration TimeoutFor(const v1::ReplicateRequest& request) {
  return GrpcReplicaTransport::kTimeout +
         absl::Seconds(static_cast<double>(request.ByteSizeLong()) / kBytesPerSecond);
}

}  // namespace

struct GrpcReplicaTransport::Call {
  std::shared_ptr<Stub> stub;
  grpc::ClientContext context;
  std::shared_ptr<const v1::ReplicateRequest> request;
  v1::ReplicateResponse response;
  Done done;
};

GrpcReplicaTransport::~GrpcReplicaTransport() { Stop(); }

void GrpcReplicaTransport::Send(const v1::ServerAddress& to,
                                std::shared_ptr<const v1::ReplicateRequest> request, Done done) {
  auto call = std::make_shared<Call>();
  SetDeadline(call->context, TimeoutFor(*request));
  call->request = std::move(request);
  call->done = std::move(done);
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;  // The process ends: nobody is left to be told.
    call->stub = StubFor(to.address());
    calls_[call.get()] = call;
  }
  // The callback runs on a thread of gRPC's; whoever sends holds no lock.
  call->stub->async()->Replicate(&call->context, call->request.get(), &call->response,
                                 [this, call = call.get()](const grpc::Status& status) {
                                   call->done(FromGrpcStatus(status), call->response);
                                   absl::MutexLock lock(&mutex_);
                                   calls_.erase(call);
                                 });
}

std::shared_ptr<GrpcReplicaTransport::Stub> GrpcReplicaTransport::StubFor(
    const std::string& address) {
  std::shared_ptr<Stub>& stub = stubs_[address];
  if (stub == nullptr)
    stub = v1::ParameterServer::NewStub(MakeChannel(address, ChannelKind::kData));
  return stub;
}

void GrpcReplicaTransport::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  for (const auto& [key, call] : calls_) call->context.TryCancel();
  const auto none_left = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.Await(absl::Condition(&none_left));
}

}  // namespace capstan::server
