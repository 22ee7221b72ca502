// GrpcReplicaTransport: ReplicaTransport over gRPC: a channel an address, a deadline a message.
//
//   records        Replicate: one message
//   a whole shard  Install: a stream of parts, each read when the one before has left
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_REPLICATION_GRPC_REPLICA_TRANSPORT_H_
#define CAPSTAN_SERVER_REPLICATION_GRPC_REPLICA_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/replication/replica_transport.h"

namespace capstan::server {

class GrpcReplicaTransport final : public ReplicaTransport {
 public:
  // Of a message without values; larger ones get a second more for each 16 MiB.
  static constexpr absl::Duration kTimeout = absl::Seconds(2);
  // Of a whole shard, and a second more for each 256 KiB: a replica that is gone is found by gRPC's
  // pings, one that takes nothing in by ShardReplication.
  static constexpr absl::Duration kInstallTimeout = absl::Seconds(10);

  ~GrpcReplicaTransport() override;  // Stops.

  void Send(const v1::ServerAddress& to, ReplicaRequest request, Moved moved, Done done) override;

  // Cancels what is in flight, refuses later messages, and returns once no `done` is running or to
  // come. Idempotent.
  void Stop();

 private:
  struct Call;  // What is in flight; a message, or an install.
  class MessageCall;
  class InstallCall;
  using Stub = v1::ParameterServer::Stub;

  // Null: this has stopped.
  std::shared_ptr<Stub> Enter(const std::string& address, const std::shared_ptr<Call>& call);
  void Leave(Call* call);

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // One an address that was ever sent to: as many as there are servers. Shared with its calls.
  absl::btree_map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // In flight.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_REPLICATION_GRPC_REPLICA_TRANSPORT_H_
