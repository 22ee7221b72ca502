// The calls that PushPullClient has in flight. Only its implementation includes this file.
#ifndef CAPSTAN_WORKER_CLIENT_PUSH_PULL_CALL_H_
#define CAPSTAN_WORKER_CLIENT_PUSH_PULL_CALL_H_

#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/message_codec.h"
#include "worker/client/push_pull_client.h"
#include "worker/client/server_peer.h"
#include "worker/client/shared_lane.h"
#include "worker/client/value_call.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

// The thread that starts a push waits this long for a full socket; then it leaves the rest of the
// message to the connection's thread, so that other servers' messages do not wait for this one.
constexpr absl::Duration kSendPatience = absl::Milliseconds(5);

// The slowest link that is supported: the deadline of a message over gRPC is extended by the time
// that all values under way take at this rate. Pings detect a server that is gone. (Data
// connections see what moves: common/net/call_deadlines.h.)
constexpr int64_t kSlowestBytesASecond = 256 << 10;

// One message in flight.
struct PushPullClient::Call {
  SendMessage message;
  Instant started;  // Set only if there is a MessageObserver.
  std::shared_ptr<ServerPeer> peer;
  ValueCall transfer;
  std::shared_ptr<const TableArrays> gradient;        // Push, until it is encoded.
  std::shared_ptr<const HalfArrays> gradient_halves;  // Push, until it is encoded; may be null.
  std::shared_ptr<const AllTableKeys> keys;
  std::vector<KeyForm> forms;        // By shard.
  std::vector<int64_t> sizes;        // Bytes of values, by shard.
  int64_t pushing = 0;               // Push: its bytes in pushing_.
  int64_t under_way = 0;             // Its bytes in the peer's under_way(), until it ends.
  SharedLane::Lease lease;           // The room of its values in shared memory; may be none.
  bool reading = false;              // From BeginRead to EndReadLocked.
  PullArrays destination = nullptr;  // The operation's; used only while `reading`.

  // Makes the message to be sent; with a lease, puts its values in shared memory. Releases the
  // gradient.
  std::variant<PushMessage, v1::PullRequest> Encode(const CallerId& caller, const Options& options);
  // REQUIRES: `reading`. Errors: the answer does not fit the message.
  absl::StatusOr<DecodedReply> Decode(ValueCall::Answer answer, const Formats& formats) const;
};

// A question to a server for its routing table.
struct PushPullClient::Ask {
  std::string server;
  std::shared_ptr<ServerPeer> peer;
  grpc::ClientContext context;
  v1::GetRoutingRequest request;
  v1::GetRoutingResponse response;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_PUSH_PULL_CALL_H_
