// PushPullClient: the C++ library by which a worker pushes gradients and pulls parameters.
//
//   PushPullClient client({.job = "lenet-1", .rank = Rank(0), .incarnation = Incarnation(7)},
//                         clock);
//   client.SetRouting(routing);                         // from the scheduler
//   client.Pull(Iteration(0), PullMode::kTrain, &parameters) -> op;  client.Wait(op);
//   client.Push(Iteration(0), {0, 1}, gradient) -> op;  client.Wait(op);
//
// It is the shell around PushPullCore: threads, connections and waiting. Gradients are sent without
// a copy; parameters are copied at most once, from the receive buffer to their places. It asks a
// server for a newer routing table when the session says so.
// Thread safety: thread-safe. Any number of threads may wait, each for an operation of its own; an
// operation makes progress while any thread waits or is in AttendOperations. The destructor cancels
// the calls that are in flight.
#ifndef CAPSTAN_WORKER_CLIENT_PUSH_PULL_CLIENT_H_
#define CAPSTAN_WORKER_CLIENT_PUSH_PULL_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/net/grpc/credentials.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/call_history.h"
#include "worker/client/call_queue.h"
#include "worker/client/client_call.h"
#include "worker/client/messages/known_key_lists.h"
#include "worker/client/messages/message_codec.h"
#include "worker/client/push_pull_core.h"
#include "worker/client/transport/server_transport.h"
#include "worker/client/transport/shared_memory_connection.h"
#include "worker/client/transport/transport.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

enum class PullMode {
  kTrain,     // Reads under the job's consistency rule.
  kSnapshot,  // Reads the servers' current values, without waiting.
};

enum class PushStart {
  kNow,   // All values are ready.
  kHeld,  // A shard is sent when Release says that its values are ready.
};

struct OpResult {
  // Pull: some elements that WaitFor had reported were read again from another primary.
  bool reread = false;
  int64_t staleness = 0;                // Pull: the largest seen.
  Generation membership;                // Pull: see OpDone.
  std::map<TableId, Version> versions;  // Pull: the lowest of each table's shards.
};

// Counts of the messages so far.
struct MessageCounts {
  int64_t messages = 0;           // All pushes and pulls that were started.
  int64_t shared_messages = 0;    // Messages with values in shared memory.
  int64_t data_messages = 0;      // Messages over data connections; the others went by gRPC.
  int64_t straight_messages = 0;  // Data messages with values received in place.
  int64_t named_lists = 0;        // Key lists that were sent as their name alone.
  int64_t unknown_lists = 0;      // Messages that named a list that the server did not know.
};

class PushPullClient {
 public:
  // Called for each message that has ended, by any thread, under no lock.
  using MessageObserver =
      std::function<void(const SendMessage& message, Instant begin, Instant end)>;

  struct Options {
    JobId job;
    Rank rank;
    Incarnation incarnation;
    PushPullSession::Options session;
    // Indexed by table id: about how many bytes a bucket's values take in a message, for the number
    // of chunks and the size of shared memory. At least 1 for sparse tables; 0 for dense ones;
    // missing entries count as 0, and an entry of 0 as 4 bytes of each sparse bucket.
    std::vector<int64_t> bucket_bytes;
    Formats formats;  // If any parameters are not fp32, session.exact_snapshots must be set.
    // The most bytes of gradients on their way to one server; further pushes wait here, so that a
    // slow server holds at most this much from each worker. One message is always sent. Pushes that
    // are answered when their iteration is committed do not wait here: the pushes that complete the
    // iteration may be behind them.
    int64_t push_bytes_max = 64 << 20;
    // After this time a push is sent although it still waits for room or for answers to others. A
    // server may hold back those answers until it has this push, while a shard of a BSP job without
    // replicas is moved.
    absl::Duration push_patience = absl::Milliseconds(100);
    // The most memory that is shared with one server, if it is on this host: bytes of both
    // directions together. It is less if the server holds little. 0: none. Values of a message that
    // is larger than one direction's half do not go there.
    int64_t shared_memory_bytes = SharedMemoryConnection::kBytesDefault;
    // Use data connections beside gRPC, if a server has them (data_connection_pool.h).
    bool data_connections = true;
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the client.
    // The task's newest capability (common/security/capability.h). Any thread calls it, under no
    // lock of the client. Null: it has none.
    std::function<std::string()> capability = nullptr;
    KnownKeyLists::Options key_lists;
    MessageObserver on_message;      // May be null.
    CallHistory* history = nullptr;  // Outlives the client. Null: none is kept.
    // The longest time that a server holds a pull before it says for whom it waits. At most 60 s.
    absl::Duration pull_wait_limit = absl::Milliseconds(500);
    // A message fails when it is this old and no byte has moved for as long (transport.h).
    absl::Duration call_timeout = absl::Seconds(30);
    // The deadline of a question for a routing table. On a slow network it waits behind values.
    absl::Duration ask_timeout = absl::Seconds(10);
  };
  PushPullClient(const Options& options, const Clock& clock);
  ~PushPullClient();
  PushPullClient(const PushPullClient&) = delete;
  PushPullClient& operator=(const PushPullClient&) = delete;

  // Accepts a routing table; older ones are ignored.
  // Errors: kInvalidArgument  a shard names a server or a range that is not there, or the table has
  // another number of shards than the one before.
  absl::Status SetRouting(const v1::RoutingTable& routing);

  // Starts pushing `gradient`, which is kept alive until acknowledged, for the iteration's `slots`
  // (empty without BSP). For sparse tables it has the rows of `keys`. Tables that `halves` has are
  // sent from there.
  // Errors: those of PushPullSession::Start; kInvalidArgument  a table is shorter than its shards,
  // or has another number of rows than keys, or the rows of one bucket take more than 60 MiB.
  absl::StatusOr<OpId> Push(Iteration iteration, Range slots,
                            std::shared_ptr<const TableArrays> gradient,
                            PushStart start = PushStart::kNow, AllTableKeys keys = {},
                            std::shared_ptr<const HalfArrays> halves = nullptr);

  // Held push: says that `gradient` is final from element `first` of the table on.
  void Release(OpId op, TableId table, int64_t first);

  // Starts pulling into `destination`, which must live until the operation has ended or was
  // cancelled. From sparse tables it pulls the rows of `keys`, or only the wanted ones. REQUIRES:
  // the same arrays for every pull of one client, because an unchanged dense shard is not sent
  // again.
  absl::StatusOr<OpId> Pull(Iteration iteration, PullMode mode, PullArrays destination,
                            AllTableKeys keys = {});

  // Starts an operation on one table alone, which may be pulled into another place each time
  // (PushPullSession::Options, pulls_have_own_arrays). `values`: [elements], or [keys, dim] for a
  // sparse table. A push may read them for a moment after it has ended: as long as `owner` is kept.
  // A pull writes them until it has ended or was cancelled. Errors: as above.
  absl::StatusOr<OpId> PushTable(TableId table, Iteration iteration, absl::Span<const float> values,
                                 std::shared_ptr<const void> owner, TableKeys keys = {});
  absl::StatusOr<OpId> PullTable(TableId table, Iteration iteration, absl::Span<float> values,
                                 TableKeys keys = {});

  // Waits for an operation to end and returns its result, once.
  // Errors: kOutOfRange      BSP, the iteration is past: continue from OldestIteration().
  //         kCancelled       Interrupt() was called; the operation goes on: wait again or
  //                          cancel it.
  //         kAborted         this incarnation is fenced off.
  //         others           the statuses with which PushPullSession ends operations.
  absl::StatusOr<OpResult> Wait(OpId op);
  // Same as Wait, but only until `deadline`, and Interrupt does not end it. No value: the operation
  // still runs.
  std::optional<absl::StatusOr<OpResult>> WaitUntil(OpId op, Instant deadline);
  void EndWaits(bool end);  // True: WaitUntil waits no more, from now on.

  // Keeps operations going for which nobody waits: repeats what was lost, and asks for routing
  // tables. Ends once Interrupt() was called; kUntilIdle: also when no operation runs. One thread
  // at a time.
  enum class Attend { kUntilInterrupted, kUntilIdle };
  void AttendOperations(Attend until);

  // Waits until the elements below `end` of a dense table have arrived by the pull `op`. From then
  // on the caller may read them, and the client does not write them, until the next call of
  // WaitFor, Wait or CancelPull with `op`. Returns false if the caller must call Wait instead: the
  // operation has failed; Interrupt() was called (Wait returns kCancelled); or elements that had
  // arrived are read again from another primary, so that computations with them must start anew.
  bool WaitFor(OpId op, TableId table, int64_t end);

  // The iteration to continue from, after Wait returned kOutOfRange.
  Iteration OldestIteration() const;

  // Gives up a pull: nothing is written to its destination afterwards.
  void CancelPull(OpId op);

  // Makes the current or the next Wait return kCancelled, or AttendOperations return.
  void Interrupt();

  SessionWait CurrentWait() const;
  // Says for how long and for whom `op` has waited. Empty: it does not run.
  std::string TextOf(OpId op) const;
  bool IsIdle() const;  // No operation runs.
  MessageCounts counts() const;
  Generation routing_generation() const;  // 0: none yet.
  bool needs_routing() const;             // See PushPullSession.

 private:
  using Calls = std::vector<std::shared_ptr<ClientCall>>;
  // The thread that starts a push waits this long for a full socket; then it leaves the rest of the
  // message to the connection's thread, so that other servers' messages do not wait for this one.
  static constexpr absl::Duration kSendPatience = absl::Milliseconds(5);

  // The events that wake a waiting thread, beside the session's deadlines: the end of an operation,
  // or of any message.
  enum class Watch { kEnds, kMessages };
  // Runs the session until `over` returns true, or the deadline; `over` is called under the lock.
  void RunUntil(Watch watch, const std::function<bool()>& over,
                Instant deadline = Instant::InfiniteFuture());
  // Takes the result of an operation if it has ended, or is not known.
  bool TakeResultLocked(OpId op, absl::StatusOr<OpResult>* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PushPullCore::Options CoreOptions();
  // Called by core_, under the lock.
  std::shared_ptr<Transport> MakeTransportLocked(const std::string& node,
                                                 const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The caller of WaitFor does not use parameters of an unfinished pull any more.
  void EndUseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until a deadline of the session has come. False: AttendOperations is to return.
  bool AwaitDueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayLeaveIdleLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAttendantLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<OpId> StartOp(const OpRequest& request, OpPayload payload);
  // Wakes the threads that wait for ended operations. Returns the calls to start once the lock is
  // released.
  Calls TakeActionsLocked(PushPullCore::Actions actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendQueued();                       // The sender's loop.
  bool NextQueued(CallQueue::Task* task);  // Waits for a task. Returns false when closing.
  void AskRouting(const CallQueue::Question& question);
  void OnRouting(const std::string& server, const absl::StatusOr<v1::RoutingTable>& routing);
  // `patience`: see Transfer::Request.
  void StartCalls(const Calls& calls, absl::Duration patience = absl::ZeroDuration());
  void StartCall(const std::shared_ptr<ClientCall>& call, absl::Duration patience);
  void OnCallDone(const std::shared_ptr<ClientCall>& call, Instant started,
                  const absl::StatusOr<Transfer::Answer>& answer);
  // Returns whether the reply was accepted, and what is to be started then.
  std::pair<bool, Calls> EndCall(const std::shared_ptr<ClientCall>& call,
                                 const absl::Status& status,
                                 const absl::StatusOr<DecodedReply>& reply);
  // Values of a reply are written to their places under no lock, between BeginRead and the call's
  // end; large values of pulls are written while they are received. BeginRead returns false if the
  // session does not expect the reply any more. CancelPull, SetRouting and Wait (for an ended
  // operation) wait until no call reads for them; because receiving may take as long as the server
  // likes, they cancel the calls first.
  bool BeginRead(ClientCall& call);
  void AwaitReadersLocked(std::optional<OpId> op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<PayloadPlaces> PlacesOf(const std::shared_ptr<ClientCall>& call);

  const Options options_;  // Constant after construction.
  const CallerId caller_;
  const Clock& clock_;

  std::atomic<int64_t> data_messages_ = 0, straight_messages_ = 0;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_, attendant_;
  PushPullCore core_ ABSL_GUARDED_BY(mutex_);
  // Every transport that was made.
  std::vector<std::shared_ptr<ServerTransport>> transports_ ABSL_GUARDED_BY(mutex_);
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;          // The sender is starting a task.
  int rerouting_ ABSL_GUARDED_BY(mutex_) = 0;             // Above 0: no reader may begin.
  int watchers_ ABSL_GUARDED_BY(mutex_) = 0;              // Threads that watch messages.
  std::optional<Attend> attend_ ABSL_GUARDED_BY(mutex_);  // A thread waits in AttendOperations.
  Instant attended_until_ ABSL_GUARDED_BY(mutex_);        // When that thread looks again.
  OpId used_ ABSL_GUARDED_BY(mutex_);  // The pull whose parameters WaitFor's caller uses; 0: none.
  Iteration oldest_ ABSL_GUARDED_BY(mutex_);
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_end_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  // Starts the calls of pushes. This may take long, because it writes them to the socket; the
  // thread that computes the gradient goes on meanwhile. Declared last: it dies first.
  std::thread sender_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_PUSH_PULL_CLIENT_H_
