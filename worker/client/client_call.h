// ClientCall: one push or pull message of a client, from when it is made to its answer.
//
// PushPullCore makes and fills calls; CallQueue decides when each leaves; its transfer
// (transport.h) carries the message.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_CLIENT_CLIENT_CALL_H_
#define CAPSTAN_WORKER_CLIENT_CLIENT_CALL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/client/messages/message_codec.h"
#include "worker/client/transport/transport.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

// The arrays and keys of an operation.
struct OpPayload {
  PushArrays gradient;                                // Push.
  std::shared_ptr<const HalfArrays> gradient_halves;  // Push; may be null.
  PullArrays destination = nullptr;                   // Pull.
  std::shared_ptr<const AllTableKeys> keys;           // Never null.
};

struct ClientCall {
  bool is_push() const { return message.request.kind == OpKind::kPush; }
  // Makes the message that is to be sent, and releases the gradient. `pull_wait_limit`: see
  // PushPullClient::Options.
  Transfer::Message Encode(const CallerId& caller, const Formats& formats,
                           absl::Duration pull_wait_limit);
  // Writes a pull's values to their places. Errors: the answer does not fit the message.
  absl::StatusOr<DecodedReply> Decode(const Transfer::Answer& answer, const Formats& formats) const;

  SendMessage message;
  Transport* transport = nullptr;      // The core's, which outlives the call.
  std::shared_ptr<Transfer> transfer;  // Made by the transport.
  OpPayload payload;                   // The destination is used only while `reading`.
  std::vector<KeyForm> forms;          // One for each shard.
  std::vector<int64_t> sizes;          // Bytes of values of each shard.
  int64_t pushing = 0;                 // Push: its bytes in CallQueue's push_bytes_max.
  bool in_shared_memory = false;       // Its values lie there.
  bool reading = false;                // Its answer's values are being written.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_CLIENT_CALL_H_
