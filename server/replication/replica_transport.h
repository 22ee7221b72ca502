// ReplicaTransport: how a primary's messages reach the servers that hold replicas; gRPC in the
// daemon, a simulated network in tests.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_REPLICATION_REPLICA_TRANSPORT_H_
#define CAPSTAN_SERVER_REPLICATION_REPLICA_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"
#include "server/table_store/captured_shard.h"

namespace capstan::server {

// A message to a replica.
struct ReplicaRequest {
  std::shared_ptr<v1::ReplicateRequest> message;  // The transport sets its checksum.
  // Of the bucket that it installs, which it is without. Null: none.
  std::shared_ptr<CapturedRows> rows;
  int64_t bytes = 0;  // With those rows, roughly.
};

class ReplicaTransport {
 public:
  // Of a whole shard: so many bytes have left. Not called after `done`.
  using Moved = std::function<void(int64_t bytes)>;
  // The response is valid if the status is OK.
  using Done = std::function<void(const absl::Status&, const v1::ReplicateResponse&)>;

  virtual ~ReplicaTransport() = default;

  // Sends `request` to the server at `to` and calls `done` once, later, from any thread; never
  // before Send has returned, and neither function under a lock. Messages may be lost (then `done`
  // gets an error), doubled or overtaken.
  virtual void Send(const v1::ServerAddress& to, ReplicaRequest request, Moved moved,
                    Done done) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_REPLICATION_REPLICA_TRANSPORT_H_
