// What PushPullClient has in flight; of its implementation alone.
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

// Who starts a push waits that long for a socket that takes no more, before it leaves the rest of
// the message to the connection's thread: other servers' messages are not to wait for this one.
constexpr absl::Duration kSendPatience = absl::Milliseconds(5);

// A link may be so slow: a message over gRPC has what all values under way take at that rate,
// beside its time. A server that is gone is noticed by pings. (Over data connections what moves is
// seen: common/net/call_deadlines.h.)
constexpr int64_t kSlowestBytesASecond = 256 << 10;

// One message in flight.
struct PushPullClient::Call {
  SendMessage message;
  Instant started;  // If somebody observes messages.
  std::shared_ptr<ServerPeer> peer;
  ValueCall transfer;
  std::shared_ptr<const TableArrays> gradient;        // Push, until it is encoded.
  std::shared_ptr<const HalfArrays> gradient_halves;  // Likewise; may be null.
  std::shared_ptr<const AllTableKeys> keys;
  std::vector<KeyForm> forms;        // By shard.
  std::vector<int64_t> sizes;        // Bytes of values, by shard.
  int64_t pushing = 0;               // Push: bytes that count as on their way.
  int64_t under_way = 0;             // Bytes that count for the peer, from its start to its end.
  SharedLane::Lease lease;           // Where they go, if that is in shared memory.
  bool reading = false;              // From BeginRead to EndReadLocked.
  PullArrays destination = nullptr;  // The operation's; only to be used while it reads.

  // The message to be sent, its values in shared memory if there is room. Lets go of the gradient.
  std::variant<PushMessage, v1::PullRequest> Encode(const CallerId& caller, const Options& options);
  // REQUIRES: it reads. Errors: the answer does not fit the message.
  absl::StatusOr<DecodedReply> Decode(ValueCall::Answer answer, const Formats& formats) const;
};

// A server is being asked for its routing table.
struct PushPullClient::Ask {
  std::string server;
  std::shared_ptr<ServerPeer> peer;
  grpc::ClientContext context;
  v1::GetRoutingRequest request;
  v1::GetRoutingResponse response;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_PUSH_PULL_CALL_H_
