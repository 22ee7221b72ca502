// NodeAgent: a server's or worker daemon's tie to the scheduler: registers, keeps the lease, and
// trades the node's state for the desired one.
//
//                Register ok: Restarted()
//   REGISTERING --------------------------> SYNCING --+ SyncNode ok, new generation: TakeDesired()
//        ^  |                                 |  ^    |
//        |  | unreachable: back off           |  +----+ unreachable: back off; the life goes on
//        |  +--> REGISTERING                  |
//        +------------------------------------+ ABORTED or NOT_FOUND: this life is over
//   FAILED_PRECONDITION (protocol versions), UNIMPLEMENTED, or to Register INVALID_ARGUMENT or, for
//   a second, ALREADY_EXISTS (another daemon has the name): on_fatal, then the end. ABORTED to
//   Register (that daemon may be dead): back off.
//
// One thread runs all calls to the handler, one at a time, under no lock of the agent's.
// Thread safety: thread-safe, except that Start, Leave and Stop are one thread's.
#ifndef CAPSTAN_COMMON_NET_NODE_AGENT_H_
#define CAPSTAN_COMMON_NET_NODE_AGENT_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/node_tie.h"
#include "common/types/ids.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan {

// What a daemon does with its tie. Called by the agent's thread only.
class NodeHandler {
 public:
  virtual ~NodeHandler() = default;
  // Adds to a registration what the node knows of at that moment (`stored`).
  virtual void FillRegistration(v1::RegisterRequest& /*request*/) {}
  // The scheduler's answer to a registration; Restarted follows.
  virtual void Registered(const v1::RegisterResponse& /*response*/) {}
  // A new life has begun (the first one too): whatever an earlier one held is void; drop all of it.
  virtual void Restarted(const NodeId& node_id, Incarnation incarnation) = 0;
  // Adds the node's state (`tables` or `tasks`) to a request; the rest is the agent's.
  virtual void FillState(v1::SyncNodeRequest& request) = 0;
  // The scheduler has answered the request that was filled in last; `read_lease` is its promise of
  // RegisterResponse, which runs from before that request was sent.
  virtual void SyncAnswered(absl::Duration /*read_lease*/) {}
  // Takes in the whole desired state. Must not wait: what takes long ends with a Wake().
  virtual void TakeDesired(const v1::SyncNodeResponse& response) = 0;
};

class NodeAgent {
 public:
  struct Options {
    std::string scheduler;     // host:port.
    v1::RegisterRequest self;  // The protocol and program versions are filled in.
    // Called at most once, by the agent's thread, which then ends: the daemon can only exit.
    std::function<void(const absl::Status&)> on_fatal;
  };

  NodeAgent(Options options, NodeHandler* handler);  // The handler outlives the agent.
  ~NodeAgent();                                      // Stops.

  void Start();
  // Syncs at once: a SyncNode that the scheduler holds is cancelled and sent again with the new
  // state. A Register goes on: the first sync after it carries the state anyway.
  void Wake();
  // Tells the scheduler that this node goes, so that it gets no more work; later syncs say so too.
  // Returns once a state that was read after this call began is answered, so that a second call
  // reports the ends of what ran. The scheduler answers such a call at once.
  // Errors: kDeadlineExceeded  no answer in time; the lease will run out instead.
  absl::Status Leave(absl::Duration timeout);
  // Says the same and returns at once; `safe` is called, by the agent's thread, once the scheduler
  // has answered that nothing of a running job is on this node any more (also when this life is
  // over, or never began: then nothing is). Until then the life goes on. REQUIRES: once at most.
  void LeaveWhenSafe(std::function<void()> safe);
  // Cancels the call in flight and ends the thread. Idempotent.
  void Stop();

 private:
  enum class Outcome { kGoOn, kBackOff, kEnd };

  void Run();
  // True: this node goes, and is not registered; a new life would only get work.
  bool NothingToLeave();
  Outcome Register();
  Outcome Sync();
  Outcome Fatal(const absl::Status& status);
  Outcome NameTaken(const absl::Status& status);
  Outcome AskForName(const absl::Status& status);
  Outcome Unreachable(const absl::Status& status);
  void Reached();
  Outcome EndLife(const absl::Status& status);
  void TellSafe();
  enum class OnWake { kCancel, kGoOn };
  // Makes `context` the one that Leave and Stop cancel, and Wake if asked to; clears the wish to
  // wake.
  void BeginCall(grpc::ClientContext* context, OnWake on_wake);
  // True if the call was, or was to be, cancelled by this agent.
  bool EndCall();
  bool Stopping();
  // Waits for `duration`, a wake or a stop.
  void Pause(absl::Duration duration);
  // Waits out a pause of the backoff and lengthens the next one; only a stop ends it early.
  void BackOff();

  // Constant after construction.
  const Options options_;
  NodeHandler* const handler_;
  const std::unique_ptr<v1::Scheduler::Stub> stub_;
  NodeTie tie_;  // The agent's thread's only.

  // The agent's thread only.
  NodeId node_id_;           // Of this life or the last one; empty: any will do for the next.
  Incarnation incarnation_;  // 0: not registered.
  uint64_t generation_seen_ = 0;
  absl::Time life_began_;
  absl::Duration sync_timeout_;
  absl::Duration read_lease_;
  absl::Duration backoff_;
  std::optional<absl::Time> asks_for_name_since_;  // Which another daemon has.
  bool reachable_ = true;                          // As last logged.
  absl::Time unreachable_since_;

  absl::Mutex mutex_;
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  int leaves_asked_ ABSL_GUARDED_BY(mutex_) = 0;        // Calls of Leave and LeaveWhenSafe.
  int leaves_answered_ ABSL_GUARDED_BY(mutex_) = 0;     // Of those, known to the scheduler.
  std::function<void()> safe_ ABSL_GUARDED_BY(mutex_);  // Null: not asked for, or called.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* in_flight_ ABSL_GUARDED_BY(mutex_) = nullptr;
  OnWake on_wake_ ABSL_GUARDED_BY(mutex_) = OnWake::kCancel;  // Of the call in flight.

  std::thread thread_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_NODE_AGENT_H_
