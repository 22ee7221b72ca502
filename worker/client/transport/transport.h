// Transport: carries a client's pushes and pulls to one server.
//
// PushPullCore makes messages, CallQueue says when each leaves, and a Transfer carries it:
//
//   NewTransfer --TakeRoom--> Start --answer, error, deadline, Cancel--> done(it) --> End
//
// ServerTransport (server_transport.h) carries them over data connections or gRPC, with values in
// shared memory where that is open. The simulator's tasks have a transport of their own.
//
// One deadline holds for all of them: a message fails with kDeadlineExceeded when it is `timeout`
// old and no byte has moved to or from the server for as long; its wait at the server counts. Where
// moving bytes cannot be seen, as over gRPC, they are assumed to move at kSlowestBytesASecond.
//
// Thread safety: any thread may call a transport's functions (HasMoved one at a time) and Cancel at
// any time. `done`, and in it End, may be called before Start has returned.
#ifndef CAPSTAN_WORKER_CLIENT_TRANSPORT_TRANSPORT_H_
#define CAPSTAN_WORKER_CLIENT_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "worker/core/push_pull_session.h"

namespace capstan {
class PayloadPlaces;  // common/net/frame/frame_reader.h
}

namespace capstan::worker {

// The slowest link that is supported.
inline constexpr int64_t kSlowestBytesASecond = 256 << 10;

// One push or pull message on its way.
class Transfer {
 public:
  using Message = std::variant<PushMessage, v1::PullRequest>;
  using Answer = std::variant<v1::PushResponse, PullAnswer>;
  // Called once, under no lock of the transport. An answer's values may be lent until End.
  using Done = std::function<void(absl::StatusOr<Answer>)>;

  struct Request {
    Message message;
    // Bytes of values, by shard, in the message or in its answer; lent until Start returns.
    absl::Span<const int64_t> sizes;
    absl::Duration timeout;  // See above.
    // Start may wait that long for a socket that takes no more bytes.
    absl::Duration patience;
    // Where large values of the answer belong, if the transport can write them there; may be null.
    std::shared_ptr<PayloadPlaces> places;
  };

  virtual ~Transfer() = default;
  // Takes room in shared memory for so many bytes of values. Returns false if there is none.
  virtual bool TakeRoom(int64_t /*bytes*/) { return false; }
  // Starts it. Returns true if it goes over a data connection. REQUIRES: called once.
  // Errors, to `done`: kDeadlineExceeded   see above
  //                    kUnavailable        the server cannot be reached, or a message was damaged
  //                    kInvalidArgument, kInternal  the answer cannot be decoded
  //                    others              the server's
  virtual bool Start(Request request, Done done) = 0;
  // Makes it end with kCancelled soon, unless it has ended. May be called before Start.
  virtual void Cancel() = 0;
  // Says that the values of its answer are not used any more. REQUIRES: `done` was called.
  virtual void End() {}
};

class Transport {
 public:
  using RoutingDone = std::function<void(const absl::StatusOr<v1::RoutingTable>&)>;

  virtual ~Transport() = default;
  virtual std::shared_ptr<Transfer> NewTransfer(OpKind kind) = 0;
  // Asks the server which server holds which shard of the job. `done` is called once, under no
  // lock of the transport; errors are those of the call.
  virtual void AskRouting(const JobId& job, absl::Duration timeout, RoutingDone done) = 0;

  // True if shared memory has no room now for so many bytes of values, but will have room when
  // other messages have given theirs back.
  virtual bool MustWaitForRoom(OpKind /*kind*/, int64_t /*bytes*/) const { return false; }
  // Sets the bytes to share with the server, both directions together.
  virtual void SetSharedBytes(int64_t /*bytes*/) {}
  // True if there may be a better way to the server, and it is time to offer it.
  virtual bool WantsOffer(Instant /*now*/) const { return false; }
  virtual void Offer(Instant /*now*/) {}
  // True if values have moved from or to the server since the last call of HasMoved.
  virtual bool HasMoved() { return false; }
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_TRANSPORT_TRANSPORT_H_
