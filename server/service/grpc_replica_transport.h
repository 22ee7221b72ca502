// GrpcReplicaTransport: ReplicaTransport over gRPC: a channel an address, a deadline a message.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_SERVICE_GRPC_REPLICA_TRANSPORT_H_
#define CAPSTAN_SERVER_SERVICE_GRPC_REPLICA_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/service/replica_transport.h"

namespace capstan::server {

class GrpcReplicaTransport final : public ReplicaTransport {
 public:
  // Of a message without values; larger ones get a second more for each 16 MiB.
  static constexpr absl::Duration kTimeout = absl::Seconds(2);

  ~GrpcReplicaTransport() override;  // Stops.

  void Send(const v1::ServerAddress& to, std::shared_ptr<const v1::ReplicateRequest> request,
            Done done) override;

  // Cancels what is in flight, refuses later messages, and returns once no `done` is running or to
  // come. Idempotent.
  void Stop();

 private:
  struct Call;
  using Stub = v1::ParameterServer::Stub;

  std::shared_ptr<Stub> StubFor(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // One an address that was ever sent to: as many as there are servers. Shared with its calls.
  absl::btree_map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // In flight.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_GRPC_REPLICA_TRANSPORT_H_
