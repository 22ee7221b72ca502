// GrpcReplicaTransport: ReplicaTransport over the network: one channel and one data connection for
// each server, and a deadline for each call.
//
//   records        Replicate: one call for all that is sent together, over the data connection
//                  (common/net/data/data_connection_pool.h) where it is open, else over gRPC
//   a whole shard  Install: a gRPC stream of parts, each read when the one before has left
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_REPLICATION_GRPC_REPLICA_TRANSPORT_H_
#define CAPSTAN_SERVER_REPLICATION_GRPC_REPLICA_TRANSPORT_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "common/time/clock.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/replica_transport.h"

namespace capstan::server {

class GrpcReplicaTransport final : public ReplicaTransport {
 public:
  // The deadline of a message without values; larger ones get a second more for each 16 MiB.
  static constexpr absl::Duration kTimeout = absl::Seconds(2);
  // The deadline of a whole shard, which gets a second more for each 256 KiB. gRPC's pings find a
  // replica that is gone sooner, and ShardPrimary finds one that accepts nothing.
  static constexpr absl::Duration kInstallTimeout = absl::Seconds(10);

  // Null credentials: plain text. They outlive the transport.
  explicit GrpcReplicaTransport(const Credentials* credentials = nullptr)
      : credentials_(credentials) {}
  ~GrpcReplicaTransport() override;  // Stops.

  void Send(const v1::ServerAddress& to, ReplicaRequest request, Moved moved, Done done) override;
  void SendTogether(const v1::ServerAddress& to, std::vector<ReplicaRequest> requests,
                    SomeDone done) override;

  // Cancels what is in flight, refuses later messages, and returns once no `done` is running or to
  // come. Idempotent.
  void Stop();

 private:
  struct Peer;  // A server.
  struct Call;  // A call in flight: messages, or an install.
  class BatchCall;
  class InstallCall;

  // Gives the call its server. False: the transport has stopped; `done` is never called, because
  // the process ends.
  bool Enter(const v1::ServerAddress& to, const std::shared_ptr<Call>& call);
  void Leave(Call* call);

  const Credentials* const credentials_;
  const SteadyClock clock_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Keyed by node and address: all that were ever sent to. Shared with their calls.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Peer>> peers_
      ABSL_GUARDED_BY(mutex_);
  std::map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // Calls in flight.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_REPLICATION_GRPC_REPLICA_TRANSPORT_H_
