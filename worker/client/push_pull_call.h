// The calls that PushPullClient has in flight. Only its implementation includes this file.
#ifndef CAPSTAN_WORKER_CLIENT_PUSH_PULL_CALL_H_
#define CAPSTAN_WORKER_CLIENT_PUSH_PULL_CALL_H_

#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/client_call.h"
#include "worker/client/push_pull_client.h"
#include "worker/client/server_peer.h"
#include "worker/client/shared_memory_connection.h"
#include "worker/client/value_call.h"

namespace capstan::worker {

// The thread that starts a push waits this long for a full socket; then it leaves the rest of the
// message to the connection's thread, so that other servers' messages do not wait for this one.
constexpr absl::Duration kSendPatience = absl::Milliseconds(5);

// The slowest link that is supported: the deadline of a message over gRPC is extended by the time
// that all values under way take at this rate. Pings detect a server that is gone. (Data
// connections see what moves: common/net/call_deadlines.h.)
constexpr int64_t kSlowestBytesASecond = 256 << 10;

struct PushPullClient::Call final : ClientCall {
  void Cancel() override { transfer.Cancel(); }
  bool TakeRoom(int64_t bytes) override {
    lease = server().TakeRoom(message.request.kind, bytes);
    return static_cast<bool>(lease);
  }
  ServerPeer& server() { return static_cast<ServerPeer&>(*peer); }

  ValueCall transfer;
  SharedMemoryConnection::Lease lease;  // The room of its values in shared memory; may be none.
  int64_t under_way = 0;                // Its bytes in the server's under_way(), until it ends.
  Instant started;                      // Set only if there is a MessageObserver.
};

// A question to a server for its routing table.
struct PushPullClient::Ask {
  std::string server;
  std::shared_ptr<Peer> peer;
  grpc::ClientContext context;
  v1::GetRoutingRequest request;
  v1::GetRoutingResponse response;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_PUSH_PULL_CALL_H_
