#include "tests/benchmark/baseline/grpc_bulk.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/status/status_macros.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 30;
constexpr absl::Duration kPatience = absl::Minutes(1);

std::shared_ptr<grpc::Channel> DefaultChannel(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

// Waits for calls that end on gRPC's threads.
class Calls {
 public:
  explicit Calls(int count) : left_(count) {}
  void End(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!status.ok()) failure_ = FromGrpcStatus(status);
    --left_;
  }
  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* left) { return *left == 0; }, &left_));
    return failure_;
  }

 private:
  absl::Mutex mutex_;
  int left_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcBulkServer>> GrpcBulkServer::Start() {
  auto bulk = std::make_unique<GrpcBulkServer>();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &bulk->port_);
  builder.RegisterService(&bulk->service_);
  bulk->server_ = builder.BuildAndStart();
  if (bulk->server_ == nullptr) return absl::UnavailableError("no port for the gRPC server");
  return bulk;
}

grpc::Status GrpcBulkServer::Service::Push(grpc::ServerContext*, const bulk::PushBytes*,
                                           bulk::Done*) {
  return grpc::Status::OK;
}

grpc::Status GrpcBulkServer::Service::Pull(grpc::ServerContext*, const bulk::PullBytes* request,
                                           bulk::PulledBytes* response) {
  if (request->count() < 0 || request->count() > kBytesMax) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            absl::StrCat(request->count(), " bytes, expected 0 to ", kBytesMax)};
  }
  response->mutable_values()->assign(static_cast<size_t>(request->count()), 'x');
  return grpc::Status::OK;
}

GrpcBulk::GrpcBulk(int port) : stub_(bulk::Bulk::NewStub(DefaultChannel(port))) {}

absl::StatusOr<Turn> GrpcBulk::Run(Direction direction, int64_t bytes, int64_t count,
                                   const std::function<double()>& processor) {
  out_.resize(static_cast<size_t>(bytes), 'x');
  in_.resize(static_cast<size_t>(bytes));
  const double moved = static_cast<double>(bytes) * (direction == Direction::kBoth ? 2 : 1);
  OperationTimer timer(processor);
  for (int64_t i = 0; i < count; ++i) {
    timer.Begin();
    CAPSTAN_RETURN_IF_ERROR(Move(direction, bytes));
    timer.End(moved);
  }
  return timer.Take();
}

absl::Status GrpcBulk::Move(Direction direction, int64_t bytes) {
  const bool push = direction != Direction::kPull, pull = direction != Direction::kPush;
  Calls calls(static_cast<int>(push) + static_cast<int>(pull));
  grpc::ClientContext push_context, pull_context;
  bulk::PushBytes push_request;
  bulk::PullBytes pull_request;
  bulk::Done done;
  bulk::PulledBytes pulled;
  const auto end = [&calls](const grpc::Status& status) { calls.End(status); };
  if (pull) {
    SetDeadline(pull_context, kPatience);
    pull_request.set_count(bytes);
    stub_->async()->Pull(&pull_context, &pull_request, &pulled, end);
  }
  if (push) {
    SetDeadline(push_context, kPatience);
    push_request.set_values(out_.data(), out_.size());
    stub_->async()->Push(&push_context, &push_request, &done, end);
  }
  CAPSTAN_RETURN_IF_ERROR(calls.Wait());
  if (!pull) return absl::OkStatus();
  if (pulled.values().size() != in_.size()) {
    return absl::InternalError(
        absl::StrCat("pulled ", pulled.values().size(), " bytes, expected ", in_.size()));
  }
  std::copy(pulled.values().begin(), pulled.values().end(), in_.begin());
  return absl::OkStatus();
}

}  // namespace capstan::benchmark
