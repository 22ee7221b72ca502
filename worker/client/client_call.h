// ClientCall: one push or pull message of a client, from when it is made to its answer.
//
// PushPullCore makes and fills them; CallQueue says when each leaves. What carries it derives from
// ClientCall and Peer: push_pull_call.h in a real client, the simulator's tasks in theirs.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_CLIENT_CLIENT_CALL_H_
#define CAPSTAN_WORKER_CLIENT_CLIENT_CALL_H_

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/message_codec.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

// The way to one server.
class Peer {
 public:
  virtual ~Peer() = default;
  // Shared memory has no room now for so many bytes of values, but will have when other messages
  // have given theirs back.
  virtual bool MustWaitForRoom(OpKind /*kind*/, int64_t /*bytes*/) const { return false; }
  // Sets the bytes to share with the server, both directions together.
  virtual void SetSharedBytes(int64_t /*bytes*/) {}
  // There may be a better way to the server, and it is time to offer it.
  virtual bool WantsOffer(Instant /*now*/) const { return false; }
  // Values have moved from or to the server since the last call of this.
  virtual bool HasMoved() { return false; }
};

// The arrays and keys of an operation.
struct OpPayload {
  std::shared_ptr<const TableArrays> gradient;        // Push.
  std::shared_ptr<const HalfArrays> gradient_halves;  // Push; may be null.
  PullArrays destination = nullptr;                   // Pull.
  std::shared_ptr<const AllTableKeys> keys;           // Not null.
};

struct ClientCall {
  using Answer = std::variant<v1::PushResponse, PullAnswer>;

  virtual ~ClientCall() = default;
  virtual void Cancel() = 0;  // Makes it end soon, unless it has ended. May be called before start.
  // Takes room in shared memory for so many bytes of values. Returns false if there is none.
  virtual bool TakeRoom(int64_t /*bytes*/) { return false; }

  bool is_push() const { return message.request.kind == OpKind::kPush; }
  // Makes the message that is to be sent, and releases the gradient. `pull_wait_limit`: see
  // PushPullClient::Options.
  std::variant<PushMessage, v1::PullRequest> Encode(const CallerId& caller, const Formats& formats,
                                                    absl::Duration pull_wait_limit);
  // Writes a pull's values to their places. Errors: the answer does not fit the message.
  absl::StatusOr<DecodedReply> Decode(const Answer& answer, const Formats& formats) const;

  SendMessage message;
  std::shared_ptr<Peer> peer;
  OpPayload payload;           // The destination is used only while `reading`.
  std::vector<KeyForm> forms;  // By shard.
  std::vector<int64_t> sizes;  // Bytes of values, by shard.
  int64_t pushing = 0;         // Push: what it takes of CallQueue's push_bytes_max.
  bool reading = false;        // Its answer's values are being written.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_CLIENT_CALL_H_
