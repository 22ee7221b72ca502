// ShardReplication: one shard's copy on this server: its role and term, and what a replica does
// with the messages of its primary.
//
//            SetRole(primary, term)                        SetRole(replica, term)
//   NONE ----------------------------> PRIMARY <-------------------------------- REPLICA
//     ^                                   |                                          |
//     '------------- SetRole(none), from any ----------------------------------------'
//
// ShardPrimary, reached by primary(), decides what a primary sends and commits; it is idle in other
// roles.
// Called by ShardLink and, under a shard's lock, by the parts of a job.
// Pure: no clock, threads, sockets or logging. Thread safety: thread-compatible; a ShardEngine
// serializes all calls.
// Invariant: what a replica has of a term is a prefix of what the term's primary made: it is never
// replaced by less.
#ifndef CAPSTAN_SERVER_CORE_REPLICATION_SHARD_REPLICATION_H_
#define CAPSTAN_SERVER_CORE_REPLICATION_SHARD_REPLICATION_H_

#include <cstdint>
#include <optional>

#include "common/types/ids.h"
#include "server/core/replication/shard_primary.h"

namespace capstan::server {

// A primary's message as its replica sees it.
struct ReplicateHead {
  Generation generation;  // The generation of the sender's routing.
  Term term;
  std::optional<Position> install;  // The snapshot's position. None: it brings records.
  Position begin;                   // The position of the first record, if there are any.
  int64_t records = 0;
};

struct ReplicaVerdict {
  enum class Kind {
    kFenced,   // The sender is no longer primary.
    kNotYet,   // This server's routing is older, or gives it no copy.
    kInstall,  // Replace the shard by the snapshot, then TookInstall.
    kReplay,   // Apply the records from `skip` on.
    kNothing,  // It is held already, or does not follow: only answer.
  };
  Kind kind = Kind::kNotYet;
  int64_t skip = 0;
};

class ShardReplication {
 public:
  // See ShardPrimary.
  explicit ShardReplication(bool logged, MessageId first = MessageId(1))
      : primary_(logged, first) {}

  // Applies a routing table that is newer than the last. `position` and `version` are the shard's
  // now. Followers that stay keep their state (ShardPrimary::SetRoute).
  void SetRole(const RoleRoute& route, Position position, Version version);

  ShardPrimary& primary() { return primary_; }
  const ShardPrimary& primary() const { return primary_; }

  // The log has everything of `term` up to `position`.
  void OnLogged(Term term, Position position);
  // Decides what to do with a message. `position` is the shard's. Changes nothing.
  ReplicaVerdict Consider(const ReplicateHead& head, Position position) const;
  void TookInstall(Term term);  // The shell has replaced the shard.

  ShardRole role() const { return role_; }
  Term term() const { return term_; }  // The primary's term, as the routing says.
  // The node of the primary of term(). Empty: no table has named it.
  const NodeId& primary_node() const { return primary_node_; }
  bool IsPrimary(const NodeId& node) const { return !node.empty() && node == primary_node_; }
  // The term in which the held state was made or received; 0: nothing is held.
  Term held_term() const { return held_term_; }
  // How far the log is in the held term. -1: not at all.
  Position logged() const { return logged_position_; }

 private:
  Generation generation_;
  ShardRole role_ = ShardRole::kNone;
  Term term_;
  NodeId primary_node_;  // The primary of term_, from the last table that named it.
  Term held_term_;
  Position logged_position_{-1};  // How far the log is in held_term_.
  ShardPrimary primary_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_REPLICATION_SHARD_REPLICATION_H_
