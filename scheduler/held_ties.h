// HeldTies: the HoldTie call of each node. The call breaks when the node's process ends, so the
// scheduler knows of the death at once and need not wait for the end of the node's lease.
//
// A tie ends with the node's incarnation, when it is cut, or when the node sends another HoldTie.
// DurableState holds the ties, SchedulerService adds and cuts them. Each call that a method returns
// is no longer held, and the caller finishes it. Thread safety: thread-compatible.
// Invariant: a node has at most one tie.
#ifndef CAPSTAN_SCHEDULER_HELD_TIES_H_
#define CAPSTAN_SCHEDULER_HELD_TIES_H_

#include <grpcpp/support/server_callback.h>

#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/types/ids.h"
#include "scheduler/core/messages.h"

namespace capstan::scheduler {

class HeldTies {
 public:
  struct Tie {
    Ticket ticket;
    Incarnation life;
    grpc::ServerUnaryReactor* reactor = nullptr;  // Owned by gRPC until Finish.
  };

  // Returns the tie that this one replaces. Null: the node had none.
  grpc::ServerUnaryReactor* Add(const NodeId& node, const Tie& tie) {
    return std::exchange(ties_[node], tie).reactor;
  }
  // Null: the tie with this ticket is no longer held.
  grpc::ServerUnaryReactor* TakeCut(const NodeId& node, Ticket ticket) {
    return TakeIf(node, [&](const Tie& tie) { return tie.ticket == ticket; });
  }
  // Null: this incarnation of the node has no tie.
  grpc::ServerUnaryReactor* TakeEnded(const NodeId& node, Incarnation life) {
    return TakeIf(node, [&](const Tie& tie) { return tie.life == life; });
  }
  std::vector<grpc::ServerUnaryReactor*> TakeAll() {
    std::vector<grpc::ServerUnaryReactor*> all;
    for (const auto& [node, tie] : std::exchange(ties_, {})) all.push_back(tie.reactor);
    return all;
  }

 private:
  template <typename Condition>
  grpc::ServerUnaryReactor* TakeIf(const NodeId& node, const Condition& holds) {
    const auto tie = ties_.find(node);
    if (tie == ties_.end() || !holds(tie->second)) return nullptr;
    grpc::ServerUnaryReactor* reactor = tie->second.reactor;
    ties_.erase(tie);
    return reactor;
  }

  absl::btree_map<NodeId, Tie> ties_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_HELD_TIES_H_
