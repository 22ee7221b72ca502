// PushPullCore: PushPullClient without threads, connections and clocks. It owns the session and the
// arrays of operations, makes the calls for the session's messages, and handles their results.
//
//   Start, Release, Tick, OnReply ──► PushPullSession ──messages──► calls ──► Actions::start
//                 ▲                         │                         │
//                 │                         └──► Actions::ended       └─────► queue(): Take
//                 └───────────── how a call ended, by whatever carries it ◄──────┘
//
// The owner starts the calls that Actions::start and queue() give it, and reports the end of each
// to OnReply. Answers of pulls are written to the operation's arrays between BeginRead and OnReply.
// Called by PushPullClient, under its mutex, and by the simulator's tasks.
// Thread safety: thread-compatible.
// Invariant: a message that the session expects is a call that waits in queue() or was given out.
#ifndef CAPSTAN_WORKER_CLIENT_PUSH_PULL_CORE_H_
#define CAPSTAN_WORKER_CLIENT_PUSH_PULL_CORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "worker/client/call_queue.h"
#include "worker/client/client_call.h"
#include "worker/client/messages/known_key_lists.h"
#include "worker/client/messages/message_codec.h"
#include "worker/client/transport/transport.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

class PushPullCore {
 public:
  struct Options {
    PushPullSession::Options session;
    std::vector<int64_t> bucket_bytes;  // This and the next four: see PushPullClient::Options.
    Formats formats;
    int64_t push_bytes_max = 64 << 20;
    int64_t shared_memory_bytes = 0;
    KnownKeyLists::Options key_lists;
    // Never returns null. The core keeps all transports to its end, because calls and questions
    // point to them.
    std::function<std::shared_ptr<Transport>(const std::string& node, const std::string& address)>
        make_transport;
  };

  // The actions that a call leaves to the owner.
  struct Actions {
    std::vector<std::shared_ptr<ClientCall>> start;
    std::vector<OpId> ended;    // Operations; see FindEnded.
    bool need_routing = false;  // Same as in SessionActions.
  };

  explicit PushPullCore(const Options& options);
  PushPullCore(const PushPullCore&) = delete;
  PushPullCore& operator=(const PushPullCore&) = delete;

  // ---- operations; arguments and errors as in PushPullClient
  // Returns whether `routing` is newer than the current table. Errors: kInvalidArgument  it has
  // another number of shards.
  absl::StatusOr<bool> IsNewer(const Routing& routing) const;
  // REQUIRES: IsNewer(routing), routing.addresses is set, and nothing is being read.
  void SetRouting(Routing routing, Instant now, Actions* actions);
  absl::StatusOr<OpId> Start(const OpRequest& request, OpPayload payload, Instant now,
                             Actions* actions);
  // The operation's calls that are made from now on use `payload`. REQUIRES: the operation runs,
  // and values that were released stay the same.
  void SetPayload(OpId op, OpPayload payload);
  void Release(OpId op, TableId table, int64_t first, Instant now, Actions* actions);
  // Cancels the operation's calls; values may still be read for it until their OnReply.
  void CancelPull(OpId op, Instant now, Actions* actions);
  void Tick(Instant now, Actions* actions);
  void Heard(const std::string& server, Instant now) { session_.Heard(server, now); }

  bool IsRunning(OpId op) const { return payloads_.contains(op); }
  bool AnyIsRunning() const { return !payloads_.empty(); }
  const OpDone* FindEnded(OpId op) const;  // Null: it runs, or is not known.
  OpDone TakeEnded(OpId op);               // REQUIRES: FindEnded(op) is not null.

  // ---- calls that were started
  bool IsExpected(const ClientCall& call) const { return session_.Expects(call.message.message); }
  void BeginRead(ClientCall& call);                                 // REQUIRES: IsExpected(call).
  bool IsRead(std::optional<OpId> op = std::nullopt) const;         // No value: any operation.
  void CancelReaders(std::optional<OpId> op = std::nullopt) const;  // No value: all operations.
  // The call has ended: with `status` if that is not OK, else with `reply`, whose values are in
  // their places. Returns whether the reply was accepted.
  bool OnReply(const std::shared_ptr<ClientCall>& call, const absl::Status& status,
               const absl::StatusOr<DecodedReply>& reply, Instant now, Actions* actions);
  void Drop(const std::shared_ptr<ClientCall>& call);  // It has ended; its result is ignored.

  CallQueue& queue() { return queue_; }
  const CallQueue& queue() const { return queue_; }
  const PushPullSession& session() const { return session_; }
  int64_t named_lists() const { return named_lists_; }      // See MessageCounts.
  int64_t unknown_lists() const { return unknown_lists_; }  // See MessageCounts.

 private:
  absl::Status CheckArrays(const OpRequest& request, const OpPayload& payload) const;
  // PushPullSession::Start's shard_bytes. REQUIRES: CheckArrays. Errors: kInvalidArgument  the keys
  // of one bucket and their rows fit in no message.
  absl::StatusOr<std::vector<int64_t>> ShardBytes(const AllTableKeys& keys) const;
  void TakeTransports();  // Takes the transports of routing_.
  void TakeActions(SessionActions& done, Instant now, Actions* actions);
  std::shared_ptr<ClientCall> MakeCall(const SendMessage& message, Instant now);
  void Ask(int server, Instant now);
  void EndRead(ClientCall& call);
  // Errors: kInternal  the server misses a list of keys, but none was named.
  absl::Status LearnLists(const ClientCall& call, const DecodedReply& reply);

  const Options options_;
  PushPullSession session_;
  CallQueue queue_;
  Routing routing_;
  std::vector<Transport*> transports_;  // Indexed as routing_.servers.
  // Keyed by node and address.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Transport>> transport_by_server_;
  std::map<OpId, OpPayload> payloads_;  // The payloads of operations that run.
  std::map<OpId, OpDone> ended_;
  std::map<const Transport*, KnownKeyLists> known_lists_;
  std::map<OpId, int> readers_;  // Calls that are being read; each is > 0.
  uint64_t next_op_ = 1;
  int64_t named_lists_ = 0;
  int64_t unknown_lists_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_PUSH_PULL_CORE_H_
