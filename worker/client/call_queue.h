// CallQueue: the calls of one client that wait for their turn, and those that are under way.
//
//   AddPull --room-------------------------------> started by the caller
//      |'---none---> pulls -----------room--------.
//   AddPush -------> pushes --room, or patience---+--> Take --> started
//   AddPlaced -----> placed ----------------------'
//
// A call may need room for its values in the memory that is shared with its server; a push also
// needs room in push_bytes_max. A call that waits for room holds back no call of another queue. A
// backward pass ends with the first layers, which the next forward pass reads first: their pushes
// overtake those that still wait, so that their parameters return first.
// PushPullCore adds the calls; its owner takes and starts them.
// Thread safety: thread-compatible.
// Invariant: if there is a push_bytes_max, pushes under way to one server have at most so many
//            bytes of values, but for those that TakeLatePush took; one may always be under way.
#ifndef CAPSTAN_WORKER_CLIENT_CALL_QUEUE_H_
#define CAPSTAN_WORKER_CLIENT_CALL_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "worker/client/client_call.h"
#include "worker/client/transport/transport.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

class CallQueue {
 public:
  // The most bytes of waiting pushes that TakeSmallPushes takes.
  static constexpr int64_t kSmallBytesMax = 1 << 20;

  using CallSet = absl::flat_hash_set<std::shared_ptr<ClientCall>>;

  // A question to a server for its routing table.
  struct Question {
    std::string server;
    Transport* transport = nullptr;
  };
  // Something to start: one field is set, or none if the call has become useless.
  struct Task {
    std::shared_ptr<ClientCall> call;
    std::optional<Question> question;
    Transport* offer = nullptr;  // WantsOffer was true.
  };

  // A call is useless once `session`, which outlives the queue, does not expect its message any
  // more. `push_bytes_max`: no value if servers answer a push only when later ones have come: it
  // must not hold these back, so pushes never wait for room.
  CallQueue(const PushPullSession* session, std::optional<int64_t> push_bytes_max)
      : session_(*session), push_bytes_max_(push_bytes_max) {}

  // ---- what comes in
  // Returns true if the call has room, and is to be started now. Otherwise it waits.
  bool AddPull(const std::shared_ptr<ClientCall>& call);
  void AddPush(std::shared_ptr<ClientCall> call);
  // Adds a call for which AddPull returned true, if another thread is to start it.
  void AddPlaced(std::shared_ptr<ClientCall> call) { placed_.push_back(std::move(call)); }
  void AddQuestion(Question question) { questions_.push_back(std::move(question)); }
  void AddOffer(Transport* transport) { offers_.push_back(transport); }
  void Remove(const std::shared_ptr<ClientCall>& call);  // It was started, and has ended.

  // ---- what is to be started
  bool empty() const { return !HasPlaced() && pushes_.empty() && pulls_.empty(); }
  bool HasPushes() const { return !pushes_.empty(); }
  // A call need not wait for room, or something that is no call is to be started.
  bool IsReady() const { return HasPlaced() || MayTake(pushes_) || MayTake(pulls_); }
  Task Take();  // REQUIRES: IsReady().
  // The first push, although it waits for room. REQUIRES: HasPushes(). Null if it became useless.
  std::shared_ptr<ClientCall> TakeLatePush() { return TakeFirst(&pushes_); }
  // If the waiting pushes are small together, takes those that need not wait.
  std::vector<std::shared_ptr<ClientCall>> TakeSmallPushes();
  void Clear();  // Drops everything that was not started.

  const CallSet& calls() const { return calls_; }  // Calls that wait or are under way.
  int64_t messages() const { return messages_; }   // Calls that were to be started so far.
  // Calls that had room in shared memory.
  int64_t shared_messages() const { return shared_messages_; }

 private:
  using Calls = std::deque<std::shared_ptr<ClientCall>>;

  bool HasPlaced() const { return !questions_.empty() || !offers_.empty() || !placed_.empty(); }
  bool IsExpected(const ClientCall& call) const { return session_.Expects(call.message.message); }
  bool MustWait(const ClientCall& call) const;
  bool MayTake(const Calls& calls) const;  // The first one need not wait, or is useless.
  std::shared_ptr<ClientCall> TakeFirst(Calls* calls);
  void Place(ClientCall& call);

  const PushPullSession& session_;
  const std::optional<int64_t> push_bytes_max_;
  CallSet calls_;
  Calls placed_;
  Calls pushes_;  // Older operations first, then lower shards.
  Calls pulls_;
  std::deque<Question> questions_;
  std::deque<Transport*> offers_;
  std::map<const Transport*, int64_t> pushing_;  // Bytes under way.
  int64_t messages_ = 0;
  int64_t shared_messages_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_CALL_QUEUE_H_
