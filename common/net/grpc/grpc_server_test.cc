#include "common/net/grpc/grpc_server.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"
#include "proto/worker.grpc.pb.h"

namespace capstan::grpc_server_test {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);

// Answers a log read with as many bytes as were asked for, or with the caller's address; holds the
// one of the job "held" until it may end.
class EchoLog final : public v1::Worker::Service {
 public:
  grpc::Status ReadTaskLog(grpc::ServerContext* context, const v1::ReadTaskLogRequest* request,
                           v1::ReadTaskLogResponse* response) override {
    if (request->job_id().empty()) return ToGrpcStatus(absl::InvalidArgumentError("no job"));
    if (request->job_id() == "held") {
      held.Notify();
      may_end.WaitForNotification();
    }
    if (request->job_id() == "peer") {
      response->set_data(context->peer());
      return grpc::Status::OK;
    }
    response->set_data(std::string(static_cast<size_t>(request->bytes_max()), 'x'));
    return grpc::Status::OK;
  }

  absl::Notification held, may_end;
};

absl::StatusOr<v1::ReadTaskLogResponse> ReadOn(v1::Worker::Stub& stub, const std::string& job,
                                               grpc::ClientContext* context) {
  SetDeadline(*context, kTimeout);
  v1::ReadTaskLogRequest request;
  request.set_job_id(job);
  v1::ReadTaskLogResponse response;
  const absl::Status status = FromGrpcStatus(stub.ReadTaskLog(context, request, &response));
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ReadTaskLogResponse> Read(const std::string& address, ChannelKind kind,
                                             const std::string& job, int bytes) {
  auto stub = v1::Worker::NewStub(MakeChannel(address, kind));
  grpc::ClientContext context;
  SetDeadline(context, kTimeout);
  v1::ReadTaskLogRequest request;
  request.set_job_id(job);
  request.set_bytes_max(bytes);
  v1::ReadTaskLogResponse response;
  const absl::Status status = FromGrpcStatus(stub->ReadTaskLog(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

TEST_CASE("GrpcServer: port 0 picks a free port and says which", "[net]") {
  EchoLog service;
  REQUIRE_OK_AND_ASSIGN(auto server,
                        GrpcServer::Start({.listen = "127.0.0.1:0", .services = {&service}}));
  CHECK(server->port() > 0);
  CHECK(server->address() == "127.0.0.1:" + std::to_string(server->port()));
  for (const ChannelKind kind : {ChannelKind::kControl, ChannelKind::kData}) {
    REQUIRE_OK_AND_ASSIGN(const auto response, Read(server->address(), kind, "lenet-1", 3));
    CHECK(response.data() == "xxx");
  }
}

TEST_CASE("GrpcServer: a message above gRPC's own limit of 4 MiB passes", "[net]") {
  EchoLog service;
  REQUIRE_OK_AND_ASSIGN(auto server, GrpcServer::Start({.services = {&service}}));
  const int bytes = 20 << 20;
  REQUIRE_OK_AND_ASSIGN(const auto response,
                        Read(server->address(), ChannelKind::kData, "lenet-1", bytes));
  CHECK(response.data().size() == static_cast<size_t>(bytes));
}

TEST_CASE("GrpcServer: a service's error reaches the caller with code and message", "[net]") {
  EchoLog service;
  REQUIRE_OK_AND_ASSIGN(auto server, GrpcServer::Start({.services = {&service}}));
  CHECK_STATUS(Read(server->address(), ChannelKind::kControl, "", 1),
               absl::StatusCode::kInvalidArgument, "no job");
}

TEST_CASE("GrpcServer: a port in use is refused with its address", "[net]") {
  REQUIRE_OK_AND_ASSIGN(auto first, GrpcServer::Start({}));
  const auto second = GrpcServer::Start({.listen = first->address()});
  CHECK_STATUS(second, absl::StatusCode::kAlreadyExists, first->address() + ": the port is in use");
}

TEST_CASE("GrpcServer: a listen address that is none is refused", "[net]") {
  CHECK_STATUS(GrpcServer::Start({.listen = "localhost"}), absl::StatusCode::kInvalidArgument,
               "expected host:port");
  CHECK_STATUS(GrpcServer::Start({.listen = "192.0.2.1:0"}), absl::StatusCode::kAlreadyExists,
               "cannot listen on 192.0.2.1:0");
}

TEST_CASE("GrpcServer: a freed port can be taken again at once", "[net]") {
  EchoLog service;
  std::string address;
  {
    REQUIRE_OK_AND_ASSIGN(auto server, GrpcServer::Start({.services = {&service}}));
    address = server->address();
    REQUIRE_OK(Read(address, ChannelKind::kControl, "lenet-1", 1));
  }
  CHECK_STATUS(Read(address, ChannelKind::kControl, "lenet-1", 1), absl::StatusCode::kUnavailable,
               "");
  REQUIRE_OK(GrpcServer::Start({.listen = address, .services = {&service}}));
}

// ---------------------------------------------------------------- limits

// Sends the bytes as one message, whatever it means, and returns how that ended.
absl::Status Send(const std::string& address, grpc::ByteBuffer message) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  SetDeadline(context, kTimeout);
  grpc::ByteBuffer response;
  absl::Notification ended;
  absl::Status status;
  stub.UnaryCall(&context, "/capstan.v1.Worker/ReadTaskLog", {}, &message, &response,
                 [&](const grpc::Status& told) {
                   status = FromGrpcStatus(told);
                   ended.Notify();
                 });
  ended.WaitForNotification();
  return status;
}

int64_t PeakBytes() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return int64_t{used.ru_maxrss} << 10;
}

TEST_CASE("GrpcServer: a message that outgrows the buffers is cut", "[net]") {
  EchoLog service;
  REQUIRE_OK_AND_ASSIGN(auto server,
                        GrpcServer::Start({.services = {&service}, .buffer_bytes_max = 32 << 20}));
  const std::vector<grpc::Slice> gigabyte(128, grpc::Slice(std::string(8 << 20, 'x')));
  const int64_t before = PeakBytes();
  CHECK_FALSE(Send(server->address(), grpc::ByteBuffer(gigabyte.data(), gigabyte.size())).ok());
  CHECK((PeakBytes() - before) >> 20 < 256);
}

TEST_CASE("GrpcServer: a peer that does not begin to speak is closed in time", "[net]") {
  REQUIRE_OK_AND_ASSIGN(auto server, GrpcServer::Start({.handshake_within = absl::Seconds(1)}));
  const Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(server->port()));
  REQUIRE(connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char room[1024];
  ssize_t got;
  while ((got = recv(made.get(), room, sizeof(room), 0)) > 0) {
  }
  CHECK(got == 0);
}

TEST_CASE("GrpcServer: a packed message is refused, since it may become any size", "[net]") {
  EchoLog service;
  REQUIRE_OK_AND_ASSIGN(auto server, GrpcServer::Start({.services = {&service}}));
  const auto stub = v1::Worker::NewStub(MakeChannel(server->address(), ChannelKind::kControl));
  for (const grpc_compression_algorithm how : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(how);
    CHECK_STATUS(ReadOn(*stub, std::string(100'000, 'x'), &context),
                 absl::StatusCode::kUnimplemented, "ompression algorithm");
  }
}

TEST_CASE("GrpcServer: a call with too much metadata is refused", "[net]") {
  EchoLog service;
  REQUIRE_OK_AND_ASSIGN(auto server, GrpcServer::Start({.services = {&service}}));
  const auto stub = v1::Worker::NewStub(MakeChannel(server->address(), ChannelKind::kControl));
  grpc::ClientContext large, small;
  large.AddMetadata("x-much", std::string(10'000, 'x'));
  small.AddMetadata("x-much", std::string(4000, 'x'));
  REQUIRE_OK(ReadOn(*stub, "job", &small));
  CHECK_FALSE(ReadOn(*stub, "job", &large).ok());  // gRPC closes the connection, too.
}

TEST_CASE("GrpcServer: an old connection gets no new calls, and its last one goes on", "[net]") {
  EchoLog service;
  absl::Duration grace = absl::Hours(1);
  bool cut = false;
  SECTION("within the grace") {}
  SECTION("until the grace is over") {
    grace = absl::Seconds(1);
    cut = true;
  }
  REQUIRE_OK_AND_ASSIGN(auto server,
                        GrpcServer::Start({.services = {&service},
                                           .connection_age_max = absl::Milliseconds(500),
                                           .connection_age_grace = grace}));
  const auto stub = v1::Worker::NewStub(MakeChannel(server->address(), ChannelKind::kControl));
  const auto ask = [&](const std::string& job) {
    grpc::ClientContext context;
    return ReadOn(*stub, job, &context);
  };
  REQUIRE_OK_AND_ASSIGN(const auto first, ask("peer"));
  absl::StatusOr<v1::ReadTaskLogResponse> held;
  std::thread holds([&] { held = ask("held"); });
  service.held.WaitForNotification();
  std::string peer;
  do {
    // A call that meets the end of the old connection may have to be repeated.
    const auto next = ask("peer");
    if (next.ok()) peer = next->data();
    if (!next.ok()) CHECK_STATUS(next, absl::StatusCode::kUnavailable, "");
  } while (peer.empty() || peer == first.data());
  if (!cut) service.may_end.Notify();
  holds.join();
  if (cut) service.may_end.Notify();
  CHECK(held.ok() != cut);
  if (cut) {
    CHECK_STATUS(held, absl::StatusCode::kUnavailable, "");
  }
}

TEST_CASE("GrpcServer: Shutdown may be called twice", "[net]") {
  REQUIRE_OK_AND_ASSIGN(auto server, GrpcServer::Start({}));
  server->Shutdown(absl::ZeroDuration());
  server->Shutdown(absl::ZeroDuration());
}

TEST_CASE("GrpcServer: reflection can be turned on, twice in a process", "[net]") {
  REQUIRE_OK(GrpcServer::Start({.reflection = true}));
  REQUIRE_OK(GrpcServer::Start({.reflection = true}));
}

}  // namespace
}  // namespace capstan::grpc_server_test
