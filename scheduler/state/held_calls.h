// HeldCalls: the calls that the core answers later, each found by its ticket. One map holds calls
// of every method. This header also defines Call, which a step answers at once, and CallAnswer.
//
// DurableState holds the calls. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_STATE_HELD_CALLS_H_
#define CAPSTAN_SCHEDULER_STATE_HELD_CALLS_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/net/grpc_types/grpc_status.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

// A call that is not answered yet. gRPC owns both objects until Finish.
struct HeldCall {
  grpc::ServerUnaryReactor* reactor = nullptr;
  google::protobuf::Message* response = nullptr;
};

// A call of one method that is not answered yet. gRPC owns both objects until Finish.
template <typename Response>
struct Call {
  grpc::ServerUnaryReactor* reactor = nullptr;
  Response* response = nullptr;
};

// The answer to one call. `fill` writes the response. Null: the response is complete already.
struct CallAnswer {
  grpc::ServerUnaryReactor* reactor = nullptr;
  absl::Status status = {};
  // True: sent after the jobs' files are written, because the answer promises that they are.
  bool after_files = false;
  std::function<void()> fill = nullptr;
};

inline grpc::ServerUnaryReactor* FinishWith(grpc::ServerUnaryReactor* reactor,
                                            const absl::Status& status) {
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

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
  std::map<Ticket, HeldCall> calls_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STATE_HELD_CALLS_H_
