#include "common/net/grpc/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/gate/audit_interceptor.h"
#include "common/net/grpc/connection_settings.h"
#include "common/net/socket/host_port.h"
#include "common/status/status_macros.h"
#include "common/types/message_limits.h"

namespace capstan {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(1);
// Calls of one connection at a time; a client waits with more. Many of them may be held: pulls that
// wait for other workers, and calls that wait for news.
constexpr int kCallsPerConnectionMax = 4096;
// The metadata of one call counts as it is before HPACK packs it. Callers of ours send some hundred
// bytes.
constexpr int kMetadataBytesMax = 8 << 10;
// Threads in calls of synchronous services (reflection is one), of which gRPC starts one a
// processor at least.
constexpr int kThreadsMax = 1024;
// Room for some messages of kMessageBytesMax on a machine with little memory. gRPC 1.51 checks the
// size of a message once it is whole, so nothing else bounds one that goes on and on.
constexpr int64_t kBufferBytesMin = int64_t{1} << 30;

int64_t BufferBytesMax(const GrpcServer::Options& options) {
  if (options.buffer_bytes_max > 0) return options.buffer_bytes_max;
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return std::max(memory / 8, kBufferBytesMin);
}

int MillisOf(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

void SetLimits(const GrpcServer::Options& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             MillisOf(options.handshake_within));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, MillisOf(options.connection_age_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             MillisOf(options.connection_age_grace));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  // gRPC 1.51 checks the size of a message before it unpacks it, so a small one could become
  // thousands of times as large. Callers of ours pack nothing.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(BufferBytesMax(options))).SetMaxThreads(kThreadsMax);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
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
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<GrpcAcceptor> acceptor,
                           GrpcAcceptor::Listen({.listen = options.listen}));
  InitPlugins(options.reflection);
  grpc::ServerBuilder builder;
  SetLimits(options, builder);
  if (options.audit != nullptr) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(AuditCalls(options.audit));
    builder.experimental().SetInterceptorCreators(std::move(creators));
  }
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options.credentials == nullptr ? grpc::InsecureServerCredentials()
                                     : options.credentials->ForServer());
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  std::unique_ptr<GrpcServer> server(new GrpcServer);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC does not start a server at ", options.listen));
  }
  address.port = acceptor->port();
  server->port_ = address.port;
  server->address_ = FormatHostPort(address);
  server->acceptor_ = std::move(acceptor);
  CAPSTAN_RETURN_IF_ERROR(server->acceptor_->Start(std::move(connections)));
  return server;
}

GrpcServer::~GrpcServer() {
  if (server_ == nullptr) return;
  Shutdown(kGrace);
  server_->Wait();
}

void GrpcServer::Shutdown(absl::Duration grace) {
  acceptor_->Stop();
  if (auto* health = server_->GetHealthCheckService(); health != nullptr) {
    health->SetServingStatus(false);
  }
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
}

}  // namespace capstan
