// GrpcServer: a listening gRPC server with the standard health service and, on request, reflection.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_GRPC_SERVER_H_
#define CAPSTAN_COMMON_NET_GRPC_SERVER_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/credentials.h"

namespace capstan {

class GrpcServer {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // host:port; port 0 picks a free one.
    bool reflection = false;
    std::vector<grpc::Service*> services;      // Not owned; outlive the server.
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the server.
  };

  // Errors: kInvalidArgument  `listen` is not host:port.
  //         kAlreadyExists    the port is in use (or the address is not this host's); names it.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Options& options);
  ~GrpcServer();  // Shuts down with a grace of one second.

  const std::string& address() const { return address_; }  // host:port with the real port.
  int port() const { return port_; }

  // Refuses new calls, lets running ones end for `grace`, then cancels them. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  GrpcServer() = default;

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  int port_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_SERVER_H_
