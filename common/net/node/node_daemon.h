// NodeDaemon: the common part of the daemons of servers and workers: their flags, their
// registration with the scheduler, and the way from start to end.
//
//   RunNodeDaemon:  Start ----> RUNNING --SIGTERM, SIGINT--> Stop --> exit 0
//                     \            \--refused by the scheduler-----> exit 1
//                      \--cannot listen, ...-----------------------> exit 1
//
//   LeaveWhenSafe:  LEAVING --may_stop, not registered--------> gone
//                      \--grace over, another signal, refused--> gone, with a warning
//
// Thread safety: functions for main's thread, except that Wake and BeginAnew may be
// called from any.
#ifndef CAPSTAN_COMMON_NET_NODE_NODE_DAEMON_H_
#define CAPSTAN_COMMON_NET_NODE_NODE_DAEMON_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/command_line/command.h"
#include "common/net/gate/handshake_audit.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/node/daemon.h"
#include "common/net/node/node_agent.h"
#include "common/net/node/node_identity.h"
#include "common/net/node/node_registration.h"
#include "common/security/audit_log.h"
#include "common/security/certificates/identity.h"
#include "proto/scheduler.pb.h"

namespace capstan {

struct NodeFlags {
  DaemonFlags daemon;
  std::string scheduler;  // --scheduler: host:port.
};

// Adds the flags of every daemon, --scheduler and --advertise.
void AddNodeFlags(Program& program, const std::string& name, NodeFlags* flags);

class NodeDaemon {
 public:
  // Null credentials: plain text. With them, the node's name is the certificate's.
  NodeDaemon(NodeFlags flags, std::unique_ptr<AuditLog> audit,
             std::unique_ptr<Credentials> credentials);
  ~NodeDaemon();  // Stops what still runs.

  const Credentials* credentials() const { return credentials_.get(); }
  AuditLog* audit() const { return audit_.get(); }

  // Keeps the identity of a named daemon in `folder` (node_identity.h), so that its successor there
  // has its name at once. Without this call, or if it fails (which is logged), the successor waits
  // until the lease of its predecessor is over. The audit log goes into `folder`, too, unless a
  // flag names its file.
  // REQUIRES: before Start.
  void KeepStateIn(const std::string& folder);
  // Listens, writes the port file, and begins to register as `role`. Services and handler outlive
  // StopServing and StopSyncing.
  // Errors: the address cannot be listened on, or the port file or audit log not be written.
  absl::Status Start(v1::Role role, int task_capacity, std::vector<grpc::Service*> services,
                     NodeHandler* handler);
  // Waits for a signal or a refusal by the scheduler; the latter is the result.
  absl::Status Wait();

  // See NodeAgent. REQUIRES: Start has been called.
  void Wake();
  void BeginAnew();
  absl::Status Leave(absl::Duration timeout);

  // Tells the scheduler that this node is leaving, and returns once the scheduler has answered that
  // nothing of a running job is here any more. It also returns if the node is not registered or is
  // refused, after a second signal, or after `grace`; these are logged with what `held` names
  // (empty: nothing).
  // REQUIRES: Start has been called, Wait has returned a signal.
  void LeaveWhenSafe(absl::Duration grace, const std::function<std::string()>& held);

  // Both are idempotent, and do nothing where there is nothing to stop.
  void StopSyncing();  // No call of the handler runs from then on.
  void StopServing();  // No call of a service runs from then on; they get a second to end.

 private:
  v1::RegisterRequest Describe(v1::Role role, int task_capacity) const;
  void OnFatal(const absl::Status& status);

  const std::unique_ptr<AuditLog> audit_;  // Outlives the credentials and the servers.
  const HandshakeAudit handshakes_;
  const std::unique_ptr<Credentials> credentials_;
  const NodeFlags flags_;
  std::string folder_;  // Empty: the daemon keeps no state.
  NodeIdentity identity_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<NodeAgent> agent_;

  absl::Mutex mutex_;
  absl::Status fatal_ ABSL_GUARDED_BY(mutex_);
  std::optional<bool> left_ ABSL_GUARDED_BY(mutex_);  // `safe` of NodeAgent::LeaveWhenSafe.
};

// One role's part of a daemon; made after the signals are blocked, before anything runs.
class NodeProgram {
 public:
  virtual ~NodeProgram() = default;  // Stops syncing and serving before what they use is gone.
  virtual absl::Status Start() = 0;  // Prepares, then calls NodeDaemon::Start.
  virtual void Stop() = 0;           // Ends in good order, after a signal.
};

// Runs the program from blocking the signals on, and returns the exit code. `listens`: addresses
// that the program listens on beside --listen.
int RunNodeDaemon(const NodeFlags& flags, PeerRole role, std::vector<std::string> listens,
                  const std::function<std::unique_ptr<NodeProgram>(NodeDaemon*)>& make);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_NODE_NODE_DAEMON_H_
