#include "common/net/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/channel.h"
#include "common/net/host_port.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(1);
constexpr int kKeepaliveTimeMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5000;
constexpr int kFrameBytes = 16'777'215;  // See channel.cc.
constexpr int kLookaheadBytes = 16 << 20;
constexpr int kReadChunkBytes = 256 << 10;

absl::Status ListenError(const std::string& address, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat("cannot listen on ", address,
                                                 ": the port is in use by another process; ",
                                                 "choose another one, or port 0 for any free one"));
  }
  return absl::AlreadyExistsError(
      absl::StrCat("cannot listen on ", address, ": ", strerror(error)));
}

// Binds to the address and closes the socket again, because gRPC says only on standard error why it
// could not listen.
absl::Status TryBind(const std::string& text, const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int rc =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (rc != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", text, ": host \"",
                                                   address.host, "\": ", gai_strerror(rc)));
  }
  int error = EADDRNOTAVAIL;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;  // Allows a port that still has dying connections, as gRPC does.
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    error = bind(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    close(fd);
    if (error == 0 || error == EADDRINUSE) break;
  }
  freeaddrinfo(found);
  return error == 0 ? absl::OkStatus() : ListenError(text, error);
}

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  // Otherwise two processes could listen on one port and share its calls by chance.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients ping every 10 s while a call is held; that is no abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadChunkBytes);
}

// Both plugins are process-wide in gRPC: health is always on, reflection once it has been asked
// for.
void InitPlugins(bool reflection) {
  static std::once_flag health_once;
  std::call_once(health_once, [] { grpc::EnableDefaultHealthCheckService(true); });
  static std::once_flag reflection_once;
  if (reflection) {
    std::call_once(reflection_once,
                   [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); });
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options) {
  CAPSTAN_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options.listen));
  CAPSTAN_RETURN_IF_ERROR(TryBind(options.listen, address));
  InitPlugins(options.reflection);
  grpc::ServerBuilder builder;
  SetLimits(builder);
  int port = 0;
  builder.AddListeningPort(options.listen,
                           options.credentials == nullptr ? grpc::InsecureServerCredentials()
                                                          : options.credentials->ForServer(),
                           &port);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  std::unique_ptr<GrpcServer> server(new GrpcServer);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || port <= 0) return ListenError(options.listen, EADDRINUSE);
  address.port = port;
  server->port_ = port;
  server->address_ = FormatHostPort(address);
  return server;
}

GrpcServer::~GrpcServer() {
  if (server_ == nullptr) return;
  Shutdown(kGrace);
  server_->Wait();
}

void GrpcServer::Shutdown(absl::Duration grace) {
  if (auto* health = server_->GetHealthCheckService(); health != nullptr) {
    health->SetServingStatus(false);
  }
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
}

}  // namespace capstan
