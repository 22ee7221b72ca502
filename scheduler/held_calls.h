// HeldCalls: the calls that the core answers later, each found by its ticket. One map holds calls
// of every method.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_HELD_CALLS_H_
#define CAPSTAN_SCHEDULER_HELD_CALLS_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "scheduler/core/messages.h"

namespace capstan::scheduler {

// A call that is not answered yet. gRPC owns both objects until Finish.
struct HeldCall {
  grpc::ServerUnaryReactor* reactor = nullptr;
  google::protobuf::Message* response = nullptr;
};

class HeldCalls {
 public:
  void Add(Ticket ticket, const HeldCall& call) { calls_[ticket] = call; }
  bool Has(Ticket ticket) const { return calls_.contains(ticket); }
  // Removes and returns the call with this ticket. nullopt: it was answered before.
  std::optional<HeldCall> Take(Ticket ticket) {
    const auto call = calls_.extract(ticket);
    if (call.empty()) return std::nullopt;
    return call.mapped();
  }
  std::vector<HeldCall> TakeAll() {
    std::vector<HeldCall> all;
    for (const auto& [ticket, call] : std::exchange(calls_, {})) all.push_back(call);
    return all;
  }

 private:
  absl::btree_map<Ticket, HeldCall> calls_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_HELD_CALLS_H_
