// HeldConnections: the HoldConnection call of each node. The call breaks when the node's process
// ends, so the scheduler knows of the death at once and need not wait for the end of the node's
// lease.
//
// A connection ends with the node's incarnation, when it is cut, or when the node sends another
// HoldConnection. DurableState holds the connections, SchedulerService adds and cuts them. Each
// call that a method returns is no longer held, and the caller finishes it. Thread safety:
// thread-compatible. Invariant: a node has at most one connection.
#ifndef CAPSTAN_SCHEDULER_STATE_HELD_CONNECTIONS_H_
#define CAPSTAN_SCHEDULER_STATE_HELD_CONNECTIONS_H_

#include <grpcpp/support/server_callback.h>

#include <map>
#include <utility>
#include <vector>

#include "common/types/ids.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

class HeldConnections {
 public:
  struct Connection {
    Ticket ticket;
    Incarnation incarnation;
    grpc::ServerUnaryReactor* reactor = nullptr;  // Owned by gRPC until Finish.
  };

  // Returns the connection that this one replaces. Null: the node had none.
  grpc::ServerUnaryReactor* Add(const NodeId& node, const Connection& connection) {
    return std::exchange(connections_[node], connection).reactor;
  }
  // Null: the connection with this ticket is no longer held.
  grpc::ServerUnaryReactor* TakeCut(const NodeId& node, Ticket ticket) {
    return TakeIf(node, [&](const Connection& connection) { return connection.ticket == ticket; });
  }
  // Null: this incarnation of the node has no connection.
  grpc::ServerUnaryReactor* TakeEnded(const NodeId& node, Incarnation incarnation) {
    return TakeIf(
        node, [&](const Connection& connection) { return connection.incarnation == incarnation; });
  }
  std::vector<grpc::ServerUnaryReactor*> TakeAll() {
    std::vector<grpc::ServerUnaryReactor*> all;
    for (const auto& [node, connection] : std::exchange(connections_, {}))
      all.push_back(connection.reactor);
    return all;
  }

 private:
  template <typename Condition>
  grpc::ServerUnaryReactor* TakeIf(const NodeId& node, const Condition& holds) {
    const auto connection = connections_.find(node);
    if (connection == connections_.end() || !holds(connection->second)) return nullptr;
    grpc::ServerUnaryReactor* reactor = connection->second.reactor;
    connections_.erase(connection);
    return reactor;
  }

  std::map<NodeId, Connection> connections_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STATE_HELD_CONNECTIONS_H_
