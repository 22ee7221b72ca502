// NodeConnection: one call that the scheduler holds for as long as a node's incarnation lasts. If
// the process is killed, the call breaks, so the scheduler notices at once, also between two syncs.
//
//   idle --Keep--> held --cut, answered--> idle    held --Keep of another incarnation, End--> idle
//
// Thread safety: one thread calls Keep and End. Invariant: at most one call is held.
#ifndef CAPSTAN_COMMON_NET_NODE_NODE_CONNECTION_H_
#define CAPSTAN_COMMON_NET_NODE_NODE_CONNECTION_H_

#include <grpcpp/client_context.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/types/ids.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan {

class NodeConnection {
 public:
  explicit NodeConnection(v1::Scheduler::Stub* stub)
      : stub_(stub) {}  // It outlives the connection.
  ~NodeConnection() { End(); }

  // Holds a call for this incarnation, if none is held.
  void Keep(const NodeId& node, Incarnation incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  void End() ABSL_LOCKS_EXCLUDED(mutex_);  // Returns once no call is held.

 private:
  v1::Scheduler::Stub* const stub_;

  // Belongs to the call; not touched while it is held.
  std::unique_ptr<grpc::ClientContext> context_;
  v1::HoldConnectionRequest request_;
  v1::HoldConnectionResponse response_;

  absl::Mutex mutex_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_NODE_NODE_CONNECTION_H_
