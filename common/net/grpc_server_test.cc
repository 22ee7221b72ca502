#include "common/net/grpc_server.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "proto/worker.grpc.pb.h"

namespace capstan {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);

// Answers a log read with as many bytes as were asked for.
class EchoLog final : public v1::Worker::Service {
 public:
  grpc::Status ReadTaskLog(grpc::ServerContext*, const v1::ReadTaskLogRequest* request,
                           v1::ReadTaskLogResponse* response) override {
    if (request->job_id().empty()) return ToGrpcStatus(absl::InvalidArgumentError("no job"));
    response->set_data(std::string(static_cast<size_t>(request->bytes_max()), 'x'));
    return grpc::Status::OK;
  }
};

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
}  // namespace capstan
