// ReplicaTransport: how a primary's messages reach the servers that hold replicas; gRPC in the
// daemon, a simulated network in tests.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_SERVICE_REPLICA_TRANSPORT_H_
#define CAPSTAN_SERVER_SERVICE_REPLICA_TRANSPORT_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"

namespace capstan::server {

class ReplicaTransport {
 public:
  // The response is valid if the status is OK.
  using Done = std::function<void(const absl::Status&, const v1::ReplicateResponse&)>;

  virtual ~ReplicaTransport() = default;

  // Sends `request` to the server at `to` and calls `done` once, later, from any thread; never
  // before Send has returned. Messages may be lost (then `done` gets an error), doubled or
  // overtaken.
  virtual void Send(const v1::ServerAddress& to,
                    std::shared_ptr<const v1::ReplicateRequest> request, Done done) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_REPLICA_TRANSPORT_H_
