// NodeAgent: keeps a daemon registered with the scheduler. It is the shell of a NodeRegistration:
// it makes the calls over gRPC, holds the node's connection, and lets other threads wake it, make
// it leave and stop it.
//
// One thread runs all calls to the handler, one at a time, under no lock of the agent's.
// Thread safety: thread-safe, except that Start, Leave and Stop are one thread's.
#ifndef CAPSTAN_COMMON_NET_NODE_NODE_AGENT_H_
#define CAPSTAN_COMMON_NET_NODE_NODE_AGENT_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "common/net/node/node_connection.h"
#include "common/net/node/node_registration.h"
#include "common/time/clock.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan {

class NodeAgent {
 public:
  // The agent sets `log`. Its thread calls `on_fatal`.
  using Options = NodeRegistration::Options;

  // Handler and credentials outlive the agent. Null credentials: plain text.
  NodeAgent(Options options, NodeHandler* handler, const Credentials* credentials = nullptr);
  ~NodeAgent();  // Stops.

  void Start();
  // Syncs at once: a SyncNode that the scheduler holds is cancelled and sent again with the new
  // state. A Register is not cancelled: the first sync after it carries the state anyway.
  void Wake();
  // Ends this incarnation, which the node has no more use for, and registers again: the handler
  // drops what it holds (FillRegistration, Restarted). No effect on a node that leaves or is not
  // registered.
  void BeginAnew();
  // Tells the scheduler that this node is leaving, so that it gets no more work; later syncs say so
  // too. Returns once the scheduler has answered a state that was read after this call began, so
  // that a second call reports the ends of what ran. The scheduler answers such a call at once.
  // Errors: kDeadlineExceeded  no answer in time; the lease will run out instead.
  absl::Status Leave(absl::Duration timeout);
  // Same as Leave, but returns at once. The agent's thread calls `left`: with true once the
  // scheduler has answered that nothing of a running job is on this node now, with false when this
  // incarnation has ended or never began: then a job may still wait for what this node has on disk.
  // Until then the incarnation continues. REQUIRES: called once at most.
  void LeaveWhenSafe(std::function<void(bool safe)> left);
  // Cancels the call in flight and ends the thread. Idempotent.
  void Stop();

 private:
  void Run();
  // True: this node is leaving; a new incarnation would only get work. REQUIRES: not registered.
  bool NothingToLeave();
  void EndIncarnationIfAsked();
  NodeRegistration::Next Register();
  NodeRegistration::Next Sync();
  void TellLeft(bool safe);
  enum class OnWake { kCancel, kGoOn };
  // Makes `context` the call that Leave and Stop cancel, and Wake too if `on_wake` says so; clears
  // wake_.
  void BeginCall(grpc::ClientContext* context, OnWake on_wake);
  // True if the call was, or was to be, cancelled by this agent.
  bool EndCall();
  bool Stopping();
  // Waits for the pause of `next`, for a stop, or for a wake if that ends the pause.
  void Wait(const NodeRegistration::Next& next);

  const std::string scheduler_;
  const std::unique_ptr<v1::Scheduler::Stub> stub_;
  const SteadyClock clock_;
  NodeConnection connection_;      // Only the agent's thread uses it.
  NodeRegistration registration_;  // Only the agent's thread uses it.

  absl::Mutex mutex_;
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  bool anew_ ABSL_GUARDED_BY(mutex_) = false;               // BeginAnew asks for it.
  int leaves_asked_ ABSL_GUARDED_BY(mutex_) = 0;            // Calls of Leave and LeaveWhenSafe.
  int leaves_answered_ ABSL_GUARDED_BY(mutex_) = 0;         // Leaves that are answered.
  std::function<void(bool)> left_ ABSL_GUARDED_BY(mutex_);  // Null: not asked for, or called.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* in_flight_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The effect of a wake on the call in flight.
  OnWake on_wake_ ABSL_GUARDED_BY(mutex_) = OnWake::kCancel;

  std::thread thread_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_NODE_NODE_AGENT_H_
