// GrpcServer: a listening gRPC server with the standard health service and, on request, reflection.
//
// Connections, handshakes, messages, calls and memory are bounded; grpc_server.cc has the bounds.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_GRPC_GRPC_SERVER_H_
#define CAPSTAN_COMMON_NET_GRPC_GRPC_SERVER_H_

#include <grpcpp/server.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc/grpc_acceptor.h"
#include "common/security/audit_log.h"

namespace capstan {

class GrpcServer {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // host:port; port 0 picks a free one.
    bool reflection = false;
    std::vector<grpc::Service*> services;      // Not owned; outlive the server.
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the server.
    AuditLog* audit = nullptr;  // Records its calls; outlives the server. Null: nothing does.
    // A connection is closed unless TLS and the start of HTTP/2 are over in this time.
    absl::Duration handshake_within = absl::Seconds(5);
    // A connection gets no new calls once it is about this old (a tenth more or less), so that new
    // certificates come into use, and its last calls are cut after the grace. Callers connect anew
    // by themselves; a call that meets the end may be UNAVAILABLE, and is to be repeated. A node
    // whose held calls are cut answers at once, and so counts as alive.
    absl::Duration connection_age_max = absl::Hours(24);
    absl::Duration connection_age_grace = absl::Hours(1);
    // The limit of gRPC's buffers of all connections; 0: an eighth of the machine's memory, at
    // least 1 GiB. Beyond it gRPC closes idle connections, then cuts calls.
    int64_t buffer_bytes_max = 0;
  };

  // Errors: kInvalidArgument  `listen` is not host:port.
  //         kAlreadyExists    the port is in use (or the address is not this host's); names it.
  //         kUnavailable      the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Options& options);
  ~GrpcServer();  // Shuts down with a grace of one second.

  const std::string& address() const { return address_; }  // host:port with the real port.
  int port() const { return port_; }

  // Refuses new calls, lets running ones end for `grace`, then cancels them. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  GrpcServer() = default;

  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GrpcAcceptor> acceptor_;  // Stops before the server does.
  std::string address_;
  int port_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_GRPC_SERVER_H_
