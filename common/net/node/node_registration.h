// NodeRegistration: a server's or worker daemon's registration with the scheduler: registers, keeps
// the lease, sends the node's state and receives the desired one. A pure state machine: its shells,
// NodeAgent and the simulator's, send the requests that it makes and hand it the answers.
//
//                Register ok: Restarted()
//   REGISTERING --------------------------> SYNCING --+ SyncNode ok, new generation: TakeDesired()
//        ^  |                                 |  ^    |
//        |  | unreachable: back off           |  +----+ unreachable: back off; it goes on
//        |  +--> REGISTERING                  |
//        +------------------------------------+ ABORTED or NOT_FOUND: it is over; EndIncarnation
//   FAILED_PRECONDITION (protocol versions), UNIMPLEMENTED, or to Register INVALID_ARGUMENT or, for
//   a second, ALREADY_EXISTS (another daemon has the name): on_fatal, then the end. ABORTED to
//   Register (that daemon may be dead): back off. Leaving, and not registered: the end.
//
// Thread safety: thread-compatible. The functions of this class call the handler's.
#ifndef CAPSTAN_COMMON_NET_NODE_NODE_REGISTRATION_H_
#define CAPSTAN_COMMON_NET_NODE_NODE_REGISTRATION_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/observability/log.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"

namespace capstan {

// The work of a daemon during its incarnation.
class NodeHandler {
 public:
  virtual ~NodeHandler() = default;
  // Adds to a registration what the node knows of at that moment (`stored`).
  virtual void FillRegistration(v1::RegisterRequest& /*request*/) {}
  // The scheduler's answer to a registration; Restarted follows.
  virtual void Registered(const v1::RegisterResponse& /*response*/) {}
  // A new incarnation has begun (the first one too): whatever an earlier one held is void; drop all
  // of it.
  virtual void Restarted(const NodeId& node_id, Incarnation incarnation) = 0;
  // Adds the node's state (`tables` or `tasks`) to a request; the rest is NodeRegistration's.
  virtual void FillState(v1::SyncNodeRequest& request) = 0;
  // The scheduler has answered the request that was filled in last; `revision` is that of its
  // store. `read_lease` is the promise in RegisterResponse, and runs from before that request was
  // sent. TakeDesired follows, if there is something new.
  virtual void SyncAnswered(absl::Duration /*read_lease*/, const v1::StoreRevision& /*revision*/) {}
  // Accepts the whole desired state. Must not wait: work that takes long ends with a wake.
  virtual void TakeDesired(const v1::SyncNodeResponse& response) = 0;
};

class NodeRegistration {
 public:
  struct Options {
    std::string scheduler;     // host:port, for messages.
    v1::RegisterRequest self;  // The protocol and program versions are filled in.
    std::function<void(LogLevel, const std::string&)> log;
    // Called at most once, just before the end: the daemon can only exit.
    std::function<void(const absl::Status&)> on_fatal;
    // Adds the counts of calls to each sync that is to carry them. Null: none has them.
    std::function<void(v1::SyncNodeRequest&)> add_counts;
  };

  // The shell's next step.
  struct Next {
    enum class Kind {
      kCall,     // Register, or SyncNode if registered().
      kBackOff,  // Waits for `pause`, then as kCall.
      kPause,    // The same, but a wake ends it.
      kEnd,      // Nothing more.
    };
    Kind kind = Kind::kCall;
    absl::Duration pause;
  };

  NodeRegistration(Options options, NodeHandler* handler);  // The handler outlives this.

  bool registered() const { return incarnation_.value() != 0; }
  const NodeId& node_id() const { return node_id_; }
  Incarnation incarnation() const { return incarnation_; }
  absl::Duration sync_timeout() const { return sync_timeout_; }  // Deadline of a SyncNode call.

  v1::RegisterRequest RegisterRequest();
  Next OnRegistered(const absl::Status& status, const v1::RegisterResponse& response, Instant now);

  // REQUIRES: registered(). `leaving`: the node goes and is to get no more work.
  v1::SyncNodeRequest SyncRequest(bool leaving);
  // `sent`: when that request was.
  Next OnSynced(const absl::Status& status, const v1::SyncNodeResponse& response, Instant sent,
                Instant now);

  // Ends this incarnation, which the node has no more use for: it registers again, and the handler
  // drops what it holds (FillRegistration, Restarted). No effect on a node that is not registered.
  void EndIncarnation();

 private:
  Next BackOff();
  Next Fatal(const absl::Status& status);
  Next NameTaken(const absl::Status& status, Instant now);
  Next AskForName(const absl::Status& status, Instant now);
  Next Unreachable(const absl::Status& status, Instant now);
  void Reached(Instant now);
  Next IncarnationEnded(const absl::Status& status, Instant now);

  const Options options_;
  NodeHandler* const handler_;

  // The name in this incarnation or the last one; empty: any will do for the next.
  NodeId node_id_;
  Incarnation incarnation_;  // 0: not registered.
  uint64_t generation_seen_ = 0;
  v1::StoreRevision revision_seen_;
  Instant incarnation_began_;
  absl::Duration sync_timeout_;
  absl::Duration read_lease_;
  absl::Duration backoff_;
  // When it began to ask for the name, if another daemon has it.
  std::optional<Instant> asks_for_name_since_;
  std::optional<Instant> unreachable_since_;  // The time that was logged last.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_NODE_NODE_REGISTRATION_H_
