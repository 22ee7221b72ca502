// PushPullClient: the C++ library by which a worker pushes gradients and pulls parameters.
//
//   PushPullClient client({.job = "lenet-1", .rank = Rank(0), .incarnation = Incarnation(7)},
//                         clock);
//   client.SetRouting(routing);                         // from the scheduler
//   client.Pull(Iteration(0), PullMode::kTrain, &parameters) -> op;  client.Wait(op);
//   client.Push(Iteration(0), {0, 1}, gradient) -> op;  client.Wait(op);
//
// The shell around PushPullSession: it owns connections and calls. Gradients are sent from where
// they lie; parameters are copied once, from where they were received to their places. A server of
// the table is asked for a newer routing table when the session says so.
// Thread safety: thread-safe; Wait is meant for one thread at a time. The destructor
// cancels what is in flight.
#ifndef CAPSTAN_WORKER_CLIENT_PUSH_PULL_CLIENT_H_
#define CAPSTAN_WORKER_CLIENT_PUSH_PULL_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/call_tracker.h"
#include "common/time/clock.h"
#include "common/types/ids.h"
#include "proto/parameter_server.grpc.pb.h"
#include "worker/client/call_history.h"
#include "worker/client/known_key_lists.h"
#include "worker/client/message_codec.h"
#include "worker/client/server_peer.h"
#include "worker/client/shared_lane.h"
#include "worker/client/value_call.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

enum class PullMode {
  kTrain,     // Under the job's consistency rule.
  kSnapshot,  // What the servers hold now.
};

enum class PushStart {
  kNow,   // All values are there.
  kHeld,  // Shards are sent as Release says that their values are there.
};

struct OpResult {
  // Pull: some of what WaitFor has told of was read once more, from another primary.
  bool reread = false;
  int64_t staleness = 0;                       // Pull: the largest seen.
  Generation membership;                       // Pull: as OpDone's.
  absl::btree_map<TableId, Version> versions;  // Pull: the lowest over each table's shards.
};

// What has gone over the wire so far.
struct PathCounts {
  int64_t messages = 0;           // Pushes and pulls that were started.
  int64_t shared_messages = 0;    // Of them, those with values in shared memory.
  int64_t data_messages = 0;      // Of them, those over data connections; the others went by gRPC.
  int64_t straight_messages = 0;  // Of those, whose values were received where they belong.
  int64_t named_lists = 0;        // Lists of keys of which the name went alone.
  int64_t unknown_lists = 0;      // Messages that were sent again as a server did not know a list.
};

class PushPullClient {
 public:
  // Told of each message that has ended, by any thread, under no lock.
  using MessageObserver =
      std::function<void(const SendMessage& message, Instant begin, Instant end)>;

  struct Options {
    JobId job;
    Rank rank;
    Incarnation incarnation;
    PushPullSession::Options session;
    // By table id: bytes of a bucket's values in a message, about, to make messages of a good size
    // from; at least 1 for sparse tables, 0 for dense ones and those beyond.
    std::vector<int64_t> bucket_bytes;
    Formats formats;  // Where parameters are not fp32, session.exact_snapshots is to be set.
    // Bytes of gradients on their way to one server: what is beyond waits here, so that a slow
    // server holds that much of each worker at most. One message always goes. Pushes that are
    // answered once their iteration is committed do not wait: those they wait for may be behind.
    int64_t push_bytes_max = 64 << 20;
    // Then a push goes that still waits for room or for answers to others: a server may hold those
    // back until it has this one, while a shard of a BSP job without replicas is moved.
    absl::Duration push_patience = absl::Milliseconds(100);
    // Most memory that is shared with one server, if it is on this host: bytes of both directions
    // together, less where the server holds little. 0: none is.
    int64_t shared_memory_bytes = SharedLane::kBytesDefault;
    // Beside gRPC, where a server has them (data_lane.h).
    bool data_connections = true;
    KnownKeyLists::Options key_lists;
    MessageObserver on_message;      // May be null.
    CallHistory* history = nullptr;  // Outlives the client. Null: none is kept.
    // Longest time that a server holds a pull before it says whom it waits for. At most 60 s.
    absl::Duration pull_wait_limit = absl::Milliseconds(500);
    // Of one message, its wait there included, while no byte of any moves (over gRPC: beyond what
    // all take at 256 KiB a second).
    absl::Duration call_timeout = absl::Seconds(30);
    // Of asking a server for its routing table. Long: on a slow network it waits behind values.
    absl::Duration ask_timeout = absl::Seconds(10);
  };
  PushPullClient(const Options& options, const Clock& clock);
  ~PushPullClient();
  PushPullClient(const PushPullClient&) = delete;
  PushPullClient& operator=(const PushPullClient&) = delete;

  // Takes in a routing table; older ones are ignored.
  // Errors: kInvalidArgument  a shard names a server or a range that is not there, or the table has
  // another number of shards than the one before.
  absl::Status SetRouting(const v1::RoutingTable& routing);

  // Starts pushing `gradient` (kept alive until acknowledged) as iteration's slots (BSP;
  // else empty); of sparse tables the rows of `keys`. Tables that `halves` has are sent from there.
  // Errors: those of PushPullSession::Start; kInvalidArgument  a table is shorter than its shards,
  // or has another number of rows than keys.
  absl::StatusOr<OpId> Push(Iteration iteration, Range slots,
                            std::shared_ptr<const TableArrays> gradient,
                            PushStart start = PushStart::kNow, AllTableKeys keys = {},
                            std::shared_ptr<const HalfArrays> halves = nullptr);

  // Of a held push: `gradient` is final from element `first` of the table on.
  void Release(OpId op, TableId table, int64_t first);

  // Starts pulling into `destination`, which must live until the operation has ended or
  // was cancelled; of sparse tables the rows of `keys`, or those of them that are wanted. REQUIRES:
  // the same arrays for every pull of one client: a dense shard that has not changed is not sent
  // again.
  absl::StatusOr<OpId> Pull(Iteration iteration, PullMode mode, PullArrays destination,
                            AllTableKeys keys = {});

  // Waits for an operation to end and returns its result, once.
  // Errors: kOutOfRange      BSP, the iteration is past: OldestIteration() says where to go on.
  //         kCancelled       Interrupt() was called; the operation goes on: wait again or
  //                          cancel it.
  //         kAborted         this incarnation is fenced off.
  //         others           as PushPullSession ends operations.
  absl::StatusOr<OpResult> Wait(OpId op);

  // Waits until the elements below `end` of a dense table have arrived by the pull `op`. From then
  // on they may be read, and are not written, until the next call with `op`: WaitFor, Wait,
  // CancelPull. Returns false if that is for Wait to tell: the operation has failed; Interrupt()
  // was called (Wait says kCancelled); or what was told of before is read once more, from another
  // primary, so that whoever has used it is to begin anew.
  bool WaitFor(OpId op, TableId table, int64_t end);

  // After Wait returned kOutOfRange.
  Iteration OldestIteration() const;

  // Gives a pull up: nothing is written to its destination afterwards.
  void CancelPull(OpId op);

  // Makes the current or the next Wait return kCancelled.
  void Interrupt();

  SessionWait CurrentWait() const;
  PathCounts counts() const;
  Generation routing_generation() const;  // 0: none yet.
  bool needs_routing() const;             // As PushPullSession's.

 private:
  struct Call;
  struct Ask;
  // Of what waits for the sender, one is set; none if it has become useless.
  struct Task {
    std::shared_ptr<Call> call;
    std::shared_ptr<Ask> ask;
    std::shared_ptr<ServerPeer> offer;  // Of shared memory, or to open data connections.
  };
  using Calls = std::deque<std::shared_ptr<Call>>;
  struct Payload {
    std::shared_ptr<const TableArrays> gradient;        // Push.
    std::shared_ptr<const HalfArrays> gradient_halves;  // Push; may be null.
    PullArrays destination = nullptr;                   // Pull.
    std::shared_ptr<const AllTableKeys> keys;           // Shared with the operation's calls.
  };

  // What a thread that waits is woken for, beside deadlines of the session.
  enum class Watch { kEnds, kMessages };  // Of operations; of each message.
  // Lets the session go on until `over`, which is asked under the lock.
  void WaitUntil(Watch watch, const std::function<bool()>& over);
  // Whoever reads parameters of a pull that has not ended is done with them, or that pull is over.
  void EndUseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<OpId> StartOp(const OpRequest& request, Payload payload);
  absl::Status CheckArrays(const OpRequest& request, const Payload& payload) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<ServerPeer>> PeersLocked(const v1::RoutingTable& routing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Turns what the session wants into calls: pushes, and pulls that wait for room in shared memory,
  // go to the sender, the others are started after the lock is released.
  std::vector<std::shared_ptr<Call>> TakeActionsLocked(SessionActions& actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Call> MakeCallLocked(const SendMessage& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskLocked(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAskDone(const std::shared_ptr<Ask>& ask, const absl::Status& status);
  // Among the pushes that wait, by their turn: of an older operation, of a lower shard, first.
  void QueuePushLocked(std::shared_ptr<Call> call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For who has just queued all pushes that wait: it starts them itself if they are small,
  // and nothing keeps them here.
  void TakeSmallPushesLocked(std::vector<std::shared_ptr<Call>>* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendQueued();            // The sender's loop.
  bool NextQueued(Task* task);  // Waits for one. Returns false when closing.
  // The first call may go: it need not wait for room or for answers, or has become useless.
  bool MayTakeLocked(const Calls& calls) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if it has become useless.
  std::shared_ptr<Call> TakeLocked(Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MustWaitLocked(const Call& call) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PlaceLocked(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the answer says of the lists that the call has named. Errors: kInternal  it named none.
  absl::Status LearnListsLocked(const Call& call, const DecodedReply& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `patience`: as DataCaller's.
  void StartCalls(const std::vector<std::shared_ptr<Call>>& calls,
                  absl::Duration patience = absl::ZeroDuration());
  void OnCallDone(const std::shared_ptr<Call>& call, absl::StatusOr<ValueCall::Answer> answer);
  // Values of a reply are written to their places under no lock, between BeginRead, which is false
  // if nobody expects the reply any more, and EndReadLocked; large ones of pulls already while they
  // are received. The session learns of them as the reading ends. A pull is cancelled, a routing
  // table taken in, and the end of an operation told once nobody reads for it; as receiving takes
  // as long as the server likes, they cancel it. Where an operation failed or was broken off
  // meanwhile, the session forgets which versions are held.
  bool BeginRead(Call& call);
  void CancelReadersLocked(std::optional<OpId> op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndReadLocked(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AwaitReadersLocked(const std::function<bool()>& gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<BodyPlaces> PlacesOf(const std::shared_ptr<Call>& call);

  const Options options_;  // Constant after construction.
  const CallerId caller_;
  const Clock& clock_;

  CallTracker tracker_;  // Of calls and questions.
  std::atomic<int64_t> data_messages_ = 0, straight_messages_ = 0;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  PushPullSession session_ ABSL_GUARDED_BY(mutex_);
  Routing routing_ ABSL_GUARDED_BY(mutex_);
  // By the index of the server in routing_.
  std::vector<std::shared_ptr<ServerPeer>> peers_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<std::string, std::shared_ptr<ServerPeer>> peer_by_address_
      ABSL_GUARDED_BY(mutex_);
  absl::btree_map<OpId, Payload> payloads_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<OpId, OpDone> ended_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<Ask>> asks_ ABSL_GUARDED_BY(mutex_);
  // For the sender. Those that wait for room or answers keep nothing of another queue from its way.
  Calls placed_ ABSL_GUARDED_BY(mutex_);  // Pulls that have their room.
  Calls pushes_ ABSL_GUARDED_BY(mutex_);
  Calls pulls_ ABSL_GUARDED_BY(mutex_);
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;  // The sender starts something.
  std::deque<std::shared_ptr<Ask>> ask_queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<ServerPeer>> offers_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<const ServerPeer*, int64_t> pushing_ ABSL_GUARDED_BY(mutex_);  // Bytes.
  absl::btree_map<const ServerPeer*, KnownKeyLists> known_lists_ ABSL_GUARDED_BY(mutex_);
  PathCounts counts_ ABSL_GUARDED_BY(mutex_);                   // Without data_messages.
  absl::btree_map<OpId, int> readers_ ABSL_GUARDED_BY(mutex_);  // None is 0.
  int rerouting_ ABSL_GUARDED_BY(mutex_) = 0;                   // Above 0: no reader may begin.
  int watchers_ ABSL_GUARDED_BY(mutex_) = 0;                    // Wait for more than operations.
  OpId used_ ABSL_GUARDED_BY(mutex_);  // Of WaitFor: its parameters are used. 0: none.
  uint64_t next_op_ ABSL_GUARDED_BY(mutex_) = 1;
  Iteration oldest_ ABSL_GUARDED_BY(mutex_);
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  // Starts the calls of pushes, which may take long (they are written to the socket meanwhile): the
  // thread that computes the gradient goes on. Declared last: it dies first.
  std::thread sender_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_PUSH_PULL_CLIENT_H_
