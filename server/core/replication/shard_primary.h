// ShardPrimary: the decisions of one shard's primary: what is sent to which follower, and what is
// committed.
//
//   a follower:  ASKED --answers--> EMPTY --takes an install--> COUNTED: what is committed waits
//                                     ^                            | for it; gets records from what
//                                     '--it holds another term ----'   it holds on, one message at
//                                                                      a time
//
// A record is committed when every counted follower holds it and, where the shard is logged, this
// server's log has it, and the scheduler knows that this log has begun. A follower counts if the
// routing says that it is in sync, and from its first answer to an install on; it never stops
// counting by this server's decision alone. It is reported FILLED once it holds whatever is
// committed and has said so in the present routing generation, and UNREACHABLE once it has not
// answered kHolds for a while. A primary is deposed when one of its followers knows a higher term:
// it then sends and commits nothing.
//
// ShardReplication owns it and sets its role; ShardLink and CommitPipeline call the rest.
// Pure: no clock, threads, sockets or logging. Records' payloads are the shell's, kept from
// oldest_kept() on. Thread safety: thread-compatible; a ShardEngine serializes all calls.
// Invariants: (1) committed_position() and committed_version() never decrease in a term.
//             (2) at most one message is in flight to a follower.
//             (3) without a role there are no followers: nothing is sent, due or reported.
#ifndef CAPSTAN_SERVER_CORE_REPLICATION_SHARD_PRIMARY_H_
#define CAPSTAN_SERVER_CORE_REPLICATION_SHARD_PRIMARY_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan::server {

using MessageId = StrongInt<struct MessageIdTag, uint64_t>;

// A server's process that holds a copy.
struct FollowerKey {
  NodeId node;
  Incarnation incarnation;
  friend auto operator<=>(const FollowerKey&, const FollowerKey&) = default;
};

struct FollowerRoute {
  FollowerKey key;
  bool in_sync = false;  // The routing says so: it holds whatever is committed.
};

enum class ShardRole { kNone, kPrimary, kReplica };

// The entry of a routing table for a shard, as this server sees it.
struct RoleRoute {
  Generation generation;
  ShardRole role = ShardRole::kNone;
  Term term;         // The term of the shard's primary, on any server.
  NodeId primary{};  // Its node. Empty: the table names no server that it lists.
  std::vector<FollowerRoute> followers;  // kPrimary.
  bool hands_over = false;  // kPrimary. A follower that is in sync is about to become primary.
  bool awaits_log = false;  // kPrimary. The scheduler does not know yet that its log has begun.
};

// A message to a follower: the whole shard as it is now, or records [begin, end). Without either it
// only asks what the follower holds.
struct ReplicaMessage {
  FollowerKey to;
  MessageId id;
  bool install = false;
  Position begin;
  Position end;
};

// A follower's answer, or the failure to get one.
struct ReplicaAnswer {
  enum class Kind {
    kHolds,
    kFenced,  // A higher term is known there.
    kNotYet,  // Its routing table is older, or gives it no copy.
    kFailed,  // No answer, or another error.
  };
  Kind kind = Kind::kFailed;
  Term term;          // kHolds. 0: nothing.
  Position position;  // kHolds.
};

struct ReplicaReport {
  FollowerKey replica;
  bool filled = false;  // False: it is unreachable.
  friend bool operator==(const ReplicaReport&, const ReplicaReport&) = default;
};

class ShardPrimary {
 public:
  static constexpr absl::Duration kBackOffMin = absl::Milliseconds(20);
  static constexpr absl::Duration kBackOffMax = absl::Milliseconds(500);
  // A follower that counts is reported if it has not answered kHolds for kUnreachableAfter. The
  // longer time is for one that does not count, for whole shards and for old routing tables: nobody
  // waits for them, or they take a while.
  static constexpr absl::Duration kUnreachableAfter = absl::Seconds(1);
  static constexpr absl::Duration kSlowUnreachableAfter = absl::Seconds(10);
  // The longer time grows by what a replica takes to make and log the whole shard that it was sent.
  static constexpr int64_t kTakenBytesPerSecond = 16 << 20;
  // Limits of the records kept for followers that lag; a follower that needs older ones gets the
  // whole shard again. While a whole shard is on its way, and until its follower has caught up,
  // both limits are higher: by the bytes of it that have left, and by a record for each
  // kBytesARecord of them.
  static constexpr int64_t kBytesARecord = 16 << 10;
  static constexpr size_t kKeptRecordsMax = 1024;
  static constexpr int64_t kKeptBytesMax = 64 << 20;  // More if they are only kKeptRecordsMin.
  static constexpr size_t kKeptRecordsMin = 4;
  // The limit for one message, unless its first record alone is larger.
  static constexpr int64_t kMessageRecordsMax = 64;
  static constexpr int64_t kMessageBytesMax = 8 << 20;

  // `logged`: a record must also be in this server's log before it is committed. `first`: the id of
  // the first message, so that late answers to an earlier ShardPrimary match no message of this
  // one.
  ShardPrimary(bool logged, MessageId first) : logged_(logged), next_message_(first) {}

  // Applies a newer routing table, which makes this server primary or leaves it so. `position` and
  // `version` are the shard's now. Followers that stay keep their state, except one that was in
  // sync and no longer is. REQUIRES: the term is above 0.
  void SetRoute(const RoleRoute& route, Position position, Version version);
  void Stop();  // This server is no longer primary.

  // Whether records are to be kept by the shell: a follower or the log wants them.
  bool keeps_records() const { return logged_ || !followers_.empty(); }
  // Notes that the shard has made a record of `bytes`. Need not be called while keeps_records() is
  // false. REQUIRES: the position follows the last one.
  void Append(Position position, Version version_after, int64_t bytes);
  // Whether a follower may be sent a whole shard now.
  using MayInstall = std::function<bool(const FollowerKey&)>;
  // The next message that may be sent now, if any; it is in flight from then on.
  std::optional<ReplicaMessage> NextMessage(Instant now, const MayInstall& may_install);
  // Notes that `bytes` of a message in flight have left. A follower that accepts a whole shard does
  // not count as silent while that message is in flight.
  void OnProgress(const FollowerKey& to, MessageId id, int64_t bytes, Instant now);
  void OnAnswer(const FollowerKey& from, MessageId id, const ReplicaAnswer& answer, Instant now);
  // The log has everything of the present term up to `position`.
  void OnLogged(Position position);
  // When something is to be sent again or to be reported. InfiniteFuture() if nothing is.
  // An install that is due and may not be sent is no deadline, for it waits for another to end.
  Instant NextDeadline(const MayInstall& may_install) const;
  void Tick(Instant now);  // Finds followers that have not answered for too long.

  // Highest position and version that no loss of a server can undo. -1: none yet in this term.
  Position committed_position() const { return committed_position_; }
  Version committed_version() const { return committed_version_; }
  // The position of the last record, if it is a barrier that no message has carried yet.
  std::optional<Position> UnsentBarrier() const;
  void AppendBarrier(Position position, int64_t bytes);
  bool HasCountedFollowers() const;
  // A follower may become primary at any moment, before this server hears of it.
  bool hands_over() const { return hands_over_; }
  bool deposed() const { return deposed_; }
  Position oldest_kept() const { return Position(last_.value() + 1 - KeptCount()); }
  std::vector<ReplicaReport> Reports() const;  // Ordered by replica.

 private:
  struct InFlight {
    MessageId id;
    Generation generation;
    bool install = false;
    Position begin;
    Position end;      // It brings the follower up to end - 1.
    Instant moved_at;  // When bytes of it last left.
  };
  struct Follower {
    bool in_sync = false;  // The routing says so.
    bool counted = false;
    bool installed = false;  // It holds this term.
    Position acked{-1};      // Up to where it holds this term's records. -1: nothing known.
    bool confirmed = false;  // It has answered a message of this routing generation.
    std::optional<InFlight> in_flight;
    Instant next_try;
    absl::Duration back_off = kBackOffMin;
    std::optional<Instant> silent_since;  // When the first message since the last kHolds was made.
    bool slow = false;  // It was sent a whole shard, or answered kNotYet, since its last kHolds.
    int64_t install_bytes = 0;  // Bytes of a whole shard that have left, until it has caught up.
    bool unreachable = false;
  };

  int64_t KeptCount() const { return static_cast<int64_t>(kept_.size()); }
  size_t IndexOf(Position kept) const {
    return static_cast<size_t>(kept.value() - oldest_kept().value());
  }
  void StartTerm(Term term, Position position, Version version);
  void SkipTo(Position position, Version version);
  void SetFollowers(const std::vector<FollowerRoute>& routes);
  void Keep(Position position, Version version_after, int64_t bytes, bool is_barrier);
  bool WantsMessage(const Follower& follower) const;
  bool NeedsInstall(const Follower& follower) const;
  ReplicaMessage MakeMessage(const FollowerKey& key, Follower& follower, Instant now);
  void Retry(Follower& follower, Instant now);
  // When the follower counts as unreachable, unless it answers kHolds before.
  Instant SilentTooLong(const Follower& follower) const;
  void Commit();
  void Trim();
  int64_t InstallBytes() const;  // The largest install_bytes of all followers.

  const bool logged_;
  Generation generation_;
  Term term_;                     // 0: this server is not primary.
  Position logged_position_{-1};  // How far the log is in term_.
  bool hands_over_ = false;
  bool awaits_log_ = false;
  bool deposed_ = false;
  Position last_;                 // The shard's last position.
  bool last_is_barrier_ = false;  // Without meaning while sent_ equals last_.
  Position sent_;                 // Highest that any message has carried.
  std::deque<int64_t> kept_;      // Bytes of the records up to last_.
  int64_t kept_bytes_ = 0;
  std::deque<std::pair<Position, Version>> uncommitted_;  // Ascending.
  Position committed_position_{-1};
  Version committed_version_{-1};
  std::map<FollowerKey, Follower> followers_;
  MessageId next_message_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_REPLICATION_SHARD_PRIMARY_H_
