// PushPullSession: how one worker task talks to the servers that hold its job's shards.
//
// It numbers every push, packs the shards of one server into messages, repeats a lost one with the
// same ids, follows the routing table from primary to primary, and stops for good when it is
// fenced. Payloads stay with the caller: the session deals in shard keys, sequences and versions.
//
// Pure: no clock, threads, sockets or logging. Time comes in, actions go out.
// Thread safety: thread-compatible; PushPullClient serializes all calls.
// Invariants:
// (1) a pull of a shard is sent only after every earlier push of that shard was acknowledged (a
//     worker reads its writes), or, under BSP, was sent: the pull's own iteration then says what it
//     must see. Early pulls are sent at once.
// (2) chunks are at most chunk_bytes_max, unless one shard is larger. Of a chunk, one message is in
//     flight, so that a shard's pushes arrive in order; with early pulls and under BSP, one push
//     and one pull; where acknowledgements wait for whole iterations, one pull and every released
//     push (they arrive in any order; slots have no order).
// (3) a repeated push carries the sequence of the first attempt.
// (4) an operation ends only with replies of primaries of the newest routing table held.
//
//            Start                    reply: all shards done
//   (none) --------> TODO --> IN FLIGHT -----------------------> DONE
//                     ^  \       | lost: back off, same ids; not ready: ask again
//                     |   \------/
//                     '-- new routing table: messages whose chunk it changes go back to TODO, and
//                         so do shards that an unfinished pull read from another primary
#ifndef CAPSTAN_WORKER_CORE_PUSH_PULL_SESSION_H_
#define CAPSTAN_WORKER_CORE_PUSH_PULL_SESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan::worker {

using OpId = StrongInt<struct OpIdTag, uint64_t>;
using MessageId = StrongInt<struct MessageIdTag, uint64_t>;

struct ShardRoute {
  ShardKey key;
  Range elements;  // Of the table; sparse: the bucket.
  int server = 0;  // Index in Routing::servers: the primary.
  Term term;       // Of this primary.
  // Of its values in a message, about; 0: fp32 of its elements.
  int64_t message_bytes = 0;
};

// Of a shard's values in a message, about.
int64_t MessageBytes(const ShardRoute& shard);

struct Routing {
  Generation generation;
  std::vector<ShardRoute> shards;           // Ordered by key.
  std::vector<std::string> servers;         // Node ids; the shell maps indices to channels.
  std::vector<std::string> addresses = {};  // By the same index, for people. Empty: not told.
  // By the same index: another one means that the process is another. Empty: all 0.
  std::vector<Incarnation> incarnations;
};

// When servers acknowledge a push.
enum class Acknowledgement {
  kEachPush,  // Once it is recorded (SSP, ASP, and BSP without replicas and log).
  // BSP with replicas or a log: once its iteration is complete and committed, so that a push waits
  // for the other slots of its iteration.
  kWholeIteration,
};

enum class OpKind { kPush, kPull };
const char* VerbOf(OpKind kind);  // "push", "pull".

// What an operation asks for.
struct OpRequest {
  OpKind kind = OpKind::kPull;
  Iteration iteration;
  Range slots;            // Push under BSP; empty otherwise.
  bool snapshot = false;  // Pull: read what is there, without waiting.
  bool held = false;      // Push: no shard is sent before Release says that its values are there.
};

// A server has said this, not the way to it: the server can be reached.
bool IsAnswer(const absl::Status& status);

// One message to one server; the shell fills in the payload of a push and sends it.
struct SendMessage {
  MessageId message;
  OpId op;
  OpRequest request;
  int server = 0;
  Generation generation;
  struct Shard {
    ShardKey key;
    Range elements;
    Sequence sequence;            // Push.
    Sequence sequence_low_water;  // Push: everything below has been answered.
    int64_t held_version = -1;    // Pull.
  };
  std::vector<Shard> shards;
};

// A shard's part of a reply.
struct ShardReply {
  enum class Outcome { kDone, kNotReady, kPast };
  Outcome outcome = Outcome::kDone;
  Version version;
  int64_t staleness = 0;  // Pull.
  Generation membership;  // Pull: of the workers that staleness counts; 0: none is known.
};

// Who keeps a pull waiting, as a server said.
struct Waiting {
  ShardKey shard;
  Iteration iteration;
  std::vector<int32_t> ranks;
  std::vector<int32_t> slots;
  friend bool operator==(const Waiting&, const Waiting&) = default;
};

// An operation has ended.
struct OpDone {
  OpId op;
  OpRequest request;
  Instant started;
  bool repeated = false;  // A message of it was lost or refused on the way.
  bool reread = false;    // Pull: as PullProgress's.
  absl::Status status;    // kOutOfRange: BSP, the iteration is past; go on from `oldest`.
  int64_t staleness = 0;  // Pull: the largest seen over the shards.
  Generation membership;  // Pull: that of all shards; 0: they differ, or one knows none.
  Iteration oldest;       // With kOutOfRange: the oldest iteration that can be read everywhere.
  absl::btree_map<TableId, Version> versions;  // Pull: the lowest over each table's shards.
};

// What the shell does after a call, in this order.
struct SessionActions {
  std::vector<SendMessage> send;
  std::vector<OpDone> done;
  // The session has just begun to need a newer routing table (needs_routing()): tell the scheduler.
  bool need_routing = false;
  // Servers (indices in the routing table) to ask for their routing table, because the scheduler
  // has sent none for long. The answer, if one comes, goes to SetRouting.
  std::vector<int> ask_routing;
};

// How far a pull has come.
struct PullProgress {
  int64_t arrived_end = 0;  // Of a dense table: the elements before it are in their places.
  // Some that had arrived were, or are, read once more, from another primary.
  bool reread = false;
};

// What the session waits for now, for `job describe`.
struct SessionWait {
  bool waiting = false;
  OpRequest request;
  Instant since;
  std::string peer;  // The server that has not answered.
  std::vector<Waiting> waiting_for;
  // Servers that owe an answer and do not even say that they are there: no link leads to them, or
  // they are gone.
  std::vector<std::string> silent;
};

class PushPullSession {
 public:
  struct Options {
    // > 0. fp32 of one message, beside its head; one shard may exceed it alone.
    // Each server's shards are cut into this many chunks, where they have 512 KiB to 4 MiB then:
    // small ones leave while others are computed, large ones cost less each.
    int chunks_wanted = 16;
    int64_t chunk_bytes_min = 512 << 10;
    int64_t chunk_bytes_max = 4 << 20;
    // Short: a new primary is ready some 100 ms after the routing table that names it.
    absl::Duration retry_delay_min = absl::Milliseconds(20);
    absl::Duration retry_delay_max = absl::Milliseconds(200);
    // After a server has said that it knows a newer routing table; a new table ends the delay.
    absl::Duration retry_delay_stale = absl::Seconds(1);
    // For so long after the need for a routing table began, and then as often as this, a server is
    // asked for its table: the scheduler has had the time to send one.
    absl::Duration ask_servers_after = absl::Milliseconds(500);
    // A server that owes an answer and was not heard for so long is asked for its table as often as
    // this. It is silent when it has not been heard for silent_after since it was asked first.
    absl::Duration probe_interval = absl::Seconds(1);
    absl::Duration silent_after = absl::Seconds(2);
    // An operation fails, naming its peer, when no server has answered it for silence_max (longer
    // than the job waits for lost servers), or when it has not ended after wait_max. Slow workers
    // are waited for; dead ones are the scheduler's to find. A push whose acknowledgement waits for
    // others has wait_max alone.
    absl::Duration silence_max = absl::Minutes(5);
    absl::Duration wait_max = absl::Hours(1);
    int operations_max = 64;  // Bound on operations that are not done.
    Acknowledgement acknowledgement = Acknowledgement::kEachPush;
    // BSP: a pull of an iteration is answered once all slots of the one before are in, this
    // worker's with them. So it is sent behind its pushes without waiting for their
    // acknowledgement, and lies at the server as the last slot comes. REQUIRES: no snapshot is
    // pulled while pushes are in flight.
    bool pulls_behind_pushes = false;
    // Pulls pass the pushes before them, also those that are held: what they must see is the
    // servers' rule alone, by the pull's iteration (SSP counts this worker's pushes, too).
    // REQUIRES: kEachPush.
    bool early_pulls = false;
    // Snapshots come in another number format: what one kind of pull holds is of no use to the
    // other.
    bool exact_snapshots = false;
  };
  explicit PushPullSession(const Options& options);

  // Takes in a routing table; older or equal generations are ignored. What is in flight to a server
  // whose shards are the same stays in flight. Whatever else is not done is sent by the new table,
  // and an unfinished pull reads the shards that have another primary now (another process, or
  // another term) once more. Servers have silence_max anew: until now those that were to answer may
  // have been nowhere. REQUIRES: the same shards as before, wherever they are.
  void SetRouting(const Routing& routing, Instant now, SessionActions* actions);

  // Starts an operation on every shard of the job. REQUIRES: a routing table is set.
  // Errors: kResourceExhausted   operations_max are not done.
  //         kFailedPrecondition  no routing table yet, or the session has failed.
  absl::Status Start(OpId op, const OpRequest& request, Instant now, SessionActions* actions);

  // The values of a held push are there from element `first` of `table` on: shards that lie wholly
  // in that part are sent. No effect on unknown operations.
  void Release(OpId op, TableId table, int64_t first, Instant now, SessionActions* actions);

  // Forgets a pull: late replies to it are ignored. No effect on pushes or unknown ids.
  void CancelPull(OpId op, Instant now, SessionActions* actions);

  // Values of the message's shards may have been written to their places, and OnReply never learnt
  // of it, as the message was forgotten meanwhile: they are asked for whatever version is held.
  void ForgetHeld(const SendMessage& message);

  // The answer to a message. `replies` are in the order of its shards if `status` is OK.
  // kUnavailable, kUnknown, kNotFound, kDeadlineExceeded, kCancelled: sent again with the same ids
  // after a delay; a newer routing table ends the delay.
  // kFailedPrecondition: likewise, with retry_delay_stale, or at once if the message was sent by
  // an older table than the one held now.
  // kAborted: fenced; every operation fails with it, and so does every later one.
  // Anything else ends the operation with that status, the server's name in front.
  // Returns false if the message is no longer known (then nothing of it may be used).
  bool OnReply(MessageId message, const absl::Status& status,
               const std::vector<ShardReply>& replies, const std::vector<Waiting>& waiting,
               Instant now, SessionActions* actions);

  // The server of that name has answered something else, as a question for its routing table.
  void Heard(const std::string& server, Instant now);

  // Whether a reply to this message would still be used.
  bool Expects(MessageId message) const { return in_flight_.contains(message); }

  void Tick(Instant now, SessionActions* actions);
  Instant NextDeadline() const;

  PullProgress ProgressOf(OpId op, TableId table) const;  // Of one that has not ended.
  SessionWait CurrentWait(Instant now) const;
  Generation routing_generation() const { return routing_.generation; }
  // An operation has met a server that is away, does not hold what the table says, or knows a newer
  // one.
  bool needs_routing() const { return ask_at_ != Instant::InfiniteFuture(); }

 private:
  enum class ShardState : uint8_t { kHeld, kTodo, kInFlight, kDone };

  struct Op {
    OpRequest request;
    Instant started;
    Instant heard;  // The last answer of any server, routing table or release, or the start.
    std::vector<ShardState> shards;   // By index in routing_.shards.
    std::vector<Sequence> sequences;  // Push: by the same index.
    std::vector<ShardReply> replies;  // Pull: by the same index, of the shards that are done.
    int64_t undone = 0;
    bool repeated = false;
    bool reread = false;
    std::vector<Waiting> waiting_for;
  };
  // What the last failure of a chunk says about its server.
  enum class Trouble : uint8_t { kNone, kAway, kKnowsNewerTable };
  struct Chunk {
    int server = 0;
    std::vector<int> shards;  // Indices in routing_.shards.
    int pushes = 0;           // In flight.
    int pulls = 0;            // In flight.
    Instant not_before;       // Back-off.
    absl::Duration delay;     // Next back-off; zero after a success.
    Trouble trouble = Trouble::kNone;
    absl::Status last_error;
  };
  struct InFlight {
    OpId op;
    OpKind kind = OpKind::kPull;
    int chunk = 0;
    std::vector<int> shards;
    Generation generation;
  };
  struct Contact {
    Instant heard;                 // The last answer of it, whatever it says.
    std::optional<Instant> asked;  // First, of the questions that it has not answered.
  };
  struct PerShard {
    Sequence next{1};
    absl::btree_map<Sequence, bool> unanswered;  // Ordered: the first is the low-water mark.
    int64_t held_version = -1;
    bool held_of_snapshot = false;
  };

  using Process = std::tuple<std::string, std::string, Incarnation>;  // Node, address, life.
  static Process ProcessOf(const Routing& table, size_t server);
  static bool HasShard(const Chunk& chunk, const Op& op, ShardState state);
  bool AwaitsIterations() const {
    return options_.acknowledgement == Acknowledgement::kWholeIteration;
  }
  // The operation whose shards of the chunk are to be sent next; OpId(0) if there is none.
  OpId NextOpOf(const Chunk& chunk) const;
  bool MaySend(const Chunk& chunk, OpKind kind) const;
  // Of one chunk: a push and a pull.
  bool BothMayBeInFlight() const {
    return options_.early_pulls || options_.pulls_behind_pushes || AwaitsIterations();
  }
  Instant DeadlineOf(const Op& op) const;
  int64_t ChunkBytes(int server) const;  // Of the chunks on that server, at most.
  std::vector<Chunk> MakeChunks() const;
  std::vector<bool> ChangedPrimaries(const Routing& routing) const;
  // Replaces the chunks by those of routing_; messages of a chunk that is the same stay in flight.
  void ReplaceChunks(const Routing& before, const std::vector<bool>& changed);
  void Pump(Instant now, SessionActions* actions);
  void SendChunk(int chunk_index, OpId op_id, Op& op, SessionActions* actions);
  void RecordReplies(const InFlight& message, Op& op, const std::vector<ShardReply>& replies);
  void Retry(Chunk& chunk, const InFlight& message, const absl::Status& status, Instant now);
  void Forget(const InFlight& message);  // In its chunk's counts.
  // Begins or ends the need for a routing table.
  void NoteNeed(Instant now, SessionActions* actions);
  int ServerToAsk() const;
  void KeepContacts(const Routing& before, Instant now);  // Of the processes that stay.
  bool Owes(int server) const;
  std::vector<std::string> SilentServers(Instant now) const;
  void Probe(Instant now, SessionActions* actions);
  void Finish(OpId op, const absl::Status& status, SessionActions* actions);
  void FailAll(const absl::Status& status, SessionActions* actions);
  void ForgetMessages(OpId op);
  absl::Status TooLong(const Op& op, Instant now) const;
  std::string ServerName(int server) const;

  const Options options_;  // Constant after construction.
  Routing routing_;
  Instant ask_at_ = Instant::InfiniteFuture();  // When to ask a server for its routing table.
  int asked_ = 0;                               // So many since the need began.
  absl::Status failed_;                         // Not OK once fenced.
  uint64_t next_message_ = 1;
  std::vector<Chunk> chunks_;
  std::vector<PerShard> per_shard_;               // By index in routing_.shards.
  std::vector<Contact> contacts_;                 // By index in routing_.servers.
  Instant probe_at_ = Instant::InfiniteFuture();  // While there are operations.
  absl::btree_map<OpId, Op> ops_;                 // In the order they were started.
  absl::btree_map<MessageId, InFlight> in_flight_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_PUSH_PULL_SESSION_H_
