// PushPullSession: the protocol by which one worker task talks to the servers of its job's shards.
//
// It numbers every push, packs the shards of one server into messages, repeats a lost message with
// the same ids, follows the routing table from primary to primary, and stops for good when it is
// fenced. Payloads stay with the caller: the session sees only shard keys, sequences and versions.
//
// Pure: no clock, threads, sockets or logging. Time comes in, actions go out.
// Thread safety: thread-compatible; PushPullClient serializes all calls.
// Invariants:
// (1) A pull of a shard is sent only after every earlier push of that shard was acknowledged (a
//     worker reads its writes), or, under BSP, was sent: the pull's own iteration then says what it
//     must see. Early pulls are sent at once.
// (2) Chunks and messages are at most chunk_bytes_max, unless one shard is larger. Each chunk has
//     one operation in flight, in one message or more, so that a shard's pushes arrive in order;
//     with early pulls and under BSP, one push and one pull; if acknowledgements wait for whole
//     iterations, one pull and every released push (they arrive in any order; slots have no order).
// (3) A repeated push carries the sequence of the first attempt.
// (4) An operation ends only with replies of primaries of the newest routing table held.
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
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan::worker {

using OpId = StrongInt<struct OpIdTag, uint64_t>;
using MessageId = StrongInt<struct MessageIdTag, uint64_t>;

struct ShardRoute {
  ShardKey key;
  Range elements;  // The shard's elements in the table; sparse: its bucket.
  int server = 0;  // The primary: an index in Routing::servers.
  Term term;       // The term of this primary.
  // About how many bytes its values take in a message; 0: its elements as fp32.
  int64_t message_bytes = 0;
};

// About how many bytes a shard's values take in a message.
int64_t MessageBytes(const ShardRoute& shard);

struct Routing {
  Generation generation;
  std::vector<ShardRoute> shards;           // Ordered by key.
  std::vector<std::string> servers;         // Node ids; the shell maps indices to channels.
  std::vector<std::string> addresses = {};  // Indexed as `servers`, for messages. Empty: unknown.
  // Indexed as `servers`. A changed incarnation means another process. Empty: all 0.
  std::vector<Incarnation> incarnations;
};

// When servers acknowledge a push.
enum class Acknowledgement {
  kEachPush,  // Once it is recorded (SSP, ASP, and BSP without replicas and log).
  // Once its iteration is complete and committed (BSP with replicas or a log): a push waits for the
  // other slots of its iteration.
  kWholeIteration,
};

enum class OpKind { kPush, kPull };
const char* VerbOf(OpKind kind);  // "push", "pull".

// The parameters of one operation.
struct OpRequest {
  OpKind kind = OpKind::kPull;
  Iteration iteration;
  Range slots;            // Push under BSP; empty otherwise.
  bool snapshot = false;  // Pull: read what is there, without waiting.
  bool held = false;      // Push: no shard is sent before Release says that its values are there.
  std::optional<TableId> table = std::nullopt;  // Only the shards of this table. None: all shards.
};

// Names an operation: "push of iteration 3".
std::string TitleOf(const OpRequest& request);

// True if this status is an answer of the server itself, which is therefore reachable; false if it
// may come from the connection to it.
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
    Sequence sequence_low_water;  // Push: no push below it is sent again.
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
  Generation membership;  // Pull: the membership that staleness counts; 0: unknown.
};

// The workers or slots for which a pull waits, as a server said.
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
  bool reread = false;    // Pull: see PullProgress::reread.
  absl::Status status;    // kOutOfRange: BSP, the iteration is past; continue from `oldest`.
  int64_t staleness = 0;  // Pull: the largest seen over the shards.
  Generation membership;  // Pull: that of all shards; 0: they differ, or one knows none.
  Iteration oldest;       // If kOutOfRange: the oldest iteration that all servers can still give.
  std::map<TableId, Version> versions;  // Pull: the lowest version of each table's shards.
  Version pushed_version;               // Push: the lowest version that a shard had after it.
};

// The actions that the shell carries out after a call, in this order.
struct SessionActions {
  std::vector<SendMessage> send;
  std::vector<OpDone> done;
  // The session has just begun to need a newer routing table (needs_routing()): report it to the
  // scheduler.
  bool need_routing = false;
  // Servers (indices in the routing table) to ask for their routing table: the scheduler has sent
  // none for long, or the server has not been heard. The answer, if one comes, goes to SetRouting.
  std::vector<int> ask_routing;
};

// How far a pull has come.
struct PullProgress {
  int64_t arrived_end = 0;  // Dense table: all elements before it are in their places.
  // Some elements that had arrived were, or are being, read again from another primary.
  bool reread = false;
};

// The operation that the session is waiting for now; `job describe` shows it.
struct SessionWait {
  bool waiting = false;
  OpRequest request;
  Instant since;
  std::string peer;  // The server of the first shard that is not done.
  std::vector<Waiting> waiting_on;
  // Servers that owe an answer and do not respond to questions either: they are unreachable or
  // gone.
  std::vector<std::string> silent;
};

class PushPullSession {
 public:
  struct Options {
    // All > 0. Each server's shards are cut into about chunks_wanted chunks, of chunk_bytes_min to
    // chunk_bytes_max bytes of values; a single shard may be larger. Small chunks leave while
    // others are computed; large ones cost less per byte.
    int chunks_wanted = 16;
    int64_t chunk_bytes_min = 512 << 10;
    int64_t chunk_bytes_max = 4 << 20;
    // Short, because a new primary is ready some 100 ms after the routing table that names it.
    absl::Duration retry_delay_min = absl::Milliseconds(20);
    absl::Duration retry_delay_max = absl::Milliseconds(200);
    // The delay after a server has said that it knows a newer routing table; a new table ends it.
    absl::Duration retry_delay_stale = absl::Seconds(1);
    // When this long has passed since the need for a routing table began, the scheduler has had the
    // time to send one: a server is asked for its table, and again each time this long has passed.
    absl::Duration ask_servers_after = absl::Milliseconds(500);
    // A server that owes an answer and was not heard for probe_interval is asked for its table,
    // once per probe_interval. It counts as silent when it was not heard for silent_after since the
    // first of these questions.
    absl::Duration probe_interval = absl::Seconds(1);
    absl::Duration silent_after = absl::Seconds(2);
    // An operation fails, with its peer's name in the message, when no server has answered it for
    // silence_max (longer than the job waits for lost servers), or when it has not ended after
    // wait_max. The session waits for slow workers; the scheduler finds dead ones. Only wait_max
    // applies to a push whose acknowledgement waits for other workers.
    absl::Duration silence_max = absl::Minutes(5);
    absl::Duration wait_max = absl::Hours(1);
    int operations_max = 64;  // Bound on operations that are not done.
    Acknowledgement acknowledgement = Acknowledgement::kEachPush;
    // BSP: a server answers a pull of an iteration when all slots of the previous iteration have
    // arrived, this worker's included. So the pull is sent behind the pushes without waiting for
    // their acknowledgement, and is at the server already when the last slot arrives. REQUIRES: no
    // snapshot is pulled while pushes are in flight.
    bool pulls_behind_pushes = false;
    // Pulls overtake earlier pushes, also held ones: only the servers' consistency rule decides, by
    // the pull's iteration, what a pull must see (SSP counts this worker's pushes, too).
    // REQUIRES: kEachPush.
    bool early_pulls = false;
    // Snapshots come in another number format: values held from a snapshot cannot serve a training
    // pull, nor the other way round.
    bool exact_snapshots = false;
    // Operations cover one table each (OpRequest::table): no chunk has shards of two, so that
    // operations on one table do not wait for those on another.
    bool table_chunks = false;
    // Pulls do not all write the same arrays: each asks for all values.
    bool pulls_have_own_arrays = false;
  };
  explicit PushPullSession(const Options& options);

  // Accepts a routing table; older or equal generations are ignored. Messages of a chunk that stays
  // the same, with the same primaries, stay in flight. All other shards that are not done are sent
  // according to the new table, and an unfinished pull reads the shards whose primary has changed
  // (another process, or another term) again. silence_max starts anew for every operation, because
  // the servers of the old table may not have existed any more. REQUIRES: the same shards as
  // before, on any servers.
  void SetRouting(const Routing& routing, Instant now, SessionActions* actions);

  // Starts an operation on every shard of the job, or of one table. `shard_bytes`: the bytes of
  // each shard in its messages, indexed as Routing::shards; empty: no chunk takes more than one
  // message.
  // Errors: kInvalidArgument     the job has no shard of that table.
  //         kResourceExhausted   operations_max are not done.
  //         kFailedPrecondition  no routing table yet, or the session has failed.
  absl::Status Start(OpId op, const OpRequest& request, Instant now, SessionActions* actions,
                     std::vector<int64_t> shard_bytes = {});

  // Says that the values of a held push are ready from element `first` of `table` on: shards that
  // lie wholly in that part are sent. No effect on unknown operations.
  void Release(OpId op, TableId table, int64_t first, Instant now, SessionActions* actions);

  // Forgets a pull: late replies to it are ignored. No effect on pushes or unknown ids.
  void CancelPull(OpId op, Instant now, SessionActions* actions);

  // Values of the message's shards may have been written to their places although OnReply accepts
  // no answer to it: the answer was broken off, or the message was forgotten meanwhile. The next
  // pulls ask for these values without naming a version that is held.
  void ForgetHeld(const SendMessage& message);

  // Accepts the answer to a message. `replies` are in the order of its shards if `status` is OK.
  // kUnavailable, kUnknown, kNotFound, kDeadlineExceeded, kCancelled: the message is sent again
  // with the same ids after a delay; a newer routing table ends the delay.
  // kFailedPrecondition: it is sent again after retry_delay_stale, or at once if it was sent by an
  // older table than the one held now.
  // kAborted: the task is fenced; every operation fails with it, and so does every later one.
  // Any other status ends the operation with that status, the server's name in front.
  // Returns false if the message is no longer known; then its values must not be used.
  bool OnReply(MessageId message, const absl::Status& status,
               const std::vector<ShardReply>& replies, const std::vector<Waiting>& waiting,
               Instant now, SessionActions* actions);

  // Says that this server has answered something other than a message, such as the question for its
  // routing table.
  void Heard(const std::string& server, Instant now);

  // True if a reply to this message would still be used.
  bool Expects(MessageId message) const { return in_flight_.contains(message); }

  void Tick(Instant now, SessionActions* actions);
  Instant NextDeadline() const;

  PullProgress ProgressOf(OpId op, TableId table) const;  // All zero if the pull has ended.
  SessionWait CurrentWait(Instant now) const;
  // Says for how long and for whom an operation has waited. REQUIRES: it runs.
  std::string TextOf(OpId op, Instant now) const { return TextOf(ops_.at(op), now); }
  Generation routing_generation() const { return routing_.generation; }
  // True if an operation has met a server that is unreachable, does not hold the shards that the
  // table says, or knows a newer table.
  bool needs_routing() const { return ask_at_ != Instant::InfiniteFuture(); }

 private:
  // kNone: the shard takes no part in the operation.
  enum class ShardState : uint8_t { kHeld, kTodo, kInFlight, kDone, kNone };

  struct Op {
    OpRequest request;
    Instant started;
    Instant heard;  // When it started, or last got a server's answer, routing table or release.
    std::vector<ShardState> shards;         // Indexed as routing_.shards.
    std::vector<int64_t> shard_bytes;       // See Start.
    std::vector<Sequence> sequences;        // Push: indexed as `shards`; 0 if it takes no part.
    std::vector<ShardReply> replies;        // Pull: indexed as `shards`, for those that are done.
    std::optional<Version> pushed_version;  // Push: OpDone's, of the shards that are done.
    int64_t undone = 0;
    bool repeated = false;
    bool reread = false;
    std::vector<Waiting> waiting_on;
  };
  // The meaning of a chunk's last failure for its server.
  enum class Trouble : uint8_t { kNone, kAway, kKnowsNewerTable };
  struct Chunk {
    int server = 0;
    std::vector<int> shards;  // Indices in routing_.shards.
    int pushes = 0;           // Pushes in flight.
    int pulls = 0;            // Pulls in flight.
    Instant not_before;       // End of the back-off.
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
    Instant heard;                 // When it last answered, with any status.
    std::optional<Instant> asked;  // When it got the first question that it has not answered.
  };
  struct PerShard {
    Sequence next{1};
    // The pushes that run and have no answer, ordered: the first is the low-water mark.
    std::map<Sequence, bool> unanswered;
    int64_t held_version = -1;
    bool held_of_snapshot = false;
  };

  using Process = std::tuple<std::string, std::string, Incarnation>;  // Node, address, incarnation.
  static Process ProcessOf(const Routing& table, size_t server);
  static bool HasShard(const Chunk& chunk, const Op& op, ShardState state);
  bool AwaitsIterations() const {
    return options_.acknowledgement == Acknowledgement::kWholeIteration;
  }
  // The operation whose shards of the chunk are to be sent next; OpId(0) if there is none.
  OpId NextOpOf(const Chunk& chunk) const;
  bool MaySend(const Chunk& chunk, OpKind kind) const;
  // True if a push and a pull of one chunk may be in flight together.
  bool BothMayBeInFlight() const {
    return options_.early_pulls || options_.pulls_behind_pushes || AwaitsIterations();
  }
  Instant DeadlineOf(const Op& op) const;
  int64_t ChunkBytes(int server) const;  // The size limit of the chunks on that server.
  std::vector<Chunk> MakeChunks() const;
  std::vector<bool> ChangedPrimaries(const Routing& routing) const;
  // Replaces the chunks by those of routing_; messages of an unchanged chunk stay in flight.
  void ReplaceChunks(const Routing& before, const std::vector<bool>& changed);
  void Pump(Instant now, SessionActions* actions);
  // Sends the operation's shards of the chunk that are to be sent, in messages of a bounded size.
  void SendChunk(int chunk_index, OpId op_id, Op& op, SessionActions* actions);
  void SendShards(int chunk_index, OpId op_id, Op& op, std::vector<int> shards,
                  SessionActions* actions);
  void RecordReplies(const InFlight& message, Op& op, const std::vector<ShardReply>& replies);
  void Retry(Chunk& chunk, const InFlight& message, const absl::Status& status, Instant now);
  void Forget(const InFlight& message);  // Takes it out of its chunk's counts.
  // Begins or ends the need for a routing table.
  void NoteNeed(Instant now, SessionActions* actions);
  int ServerToAsk() const;
  void KeepContacts(const Routing& before, Instant now);  // Keeps those of processes that stay.
  bool Owes(int server) const;
  std::vector<std::string> SilentServers(Instant now) const;
  void Probe(Instant now, SessionActions* actions);
  void Finish(OpId op, const absl::Status& status, SessionActions* actions);
  void FailAll(const absl::Status& status, SessionActions* actions);
  void ForgetMessages(OpId op);
  absl::Status CheckStart(const OpRequest& request) const;
  std::string TextOf(const Op& op, Instant now) const;
  int FirstUndone(const Op& op) const;  // An index in routing_.shards; its size if all are done.
  std::string ServerName(int server) const;

  const Options options_;  // Constant after construction.
  Routing routing_;
  Instant ask_at_ = Instant::InfiniteFuture();  // When to ask a server for its routing table.
  int asked_ = 0;                               // The number of questions since the need began.
  absl::Status failed_;                         // Why it is fenced; OK if it is not.
  uint64_t next_message_ = 1;
  std::vector<Chunk> chunks_;
  std::vector<PerShard> per_shard_;               // Indexed as routing_.shards.
  std::vector<Contact> contacts_;                 // Indexed as routing_.servers.
  Instant probe_at_ = Instant::InfiniteFuture();  // When to probe next, if there are operations.
  std::map<OpId, Op> ops_;                        // Ordered as they were started.
  std::map<MessageId, InFlight> in_flight_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_PUSH_PULL_SESSION_H_
