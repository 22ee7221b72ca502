// ShardCopies: the primary and the replicas of one shard, and their pending changes.
//
// ShardMap has one for each shard of a job, and decides what changes. Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CORE_SHARDS_SHARD_COPIES_H_
#define CAPSTAN_SCHEDULER_CORE_SHARDS_SHARD_COPIES_H_

#include <map>
#include <vector>

#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/shards/job_servers.h"

namespace capstan::scheduler {

struct ReplicaCopy {
  ServerRef server;
  bool in_sync = false;
  Generation placed;  // The table that listed it first.
  // If a replica in sync is to leave the table: the table that the primary must apply before that,
  // so that it is known to live. 0: it stays.
  Generation leaves;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(server, in_sync, placed, leaves);
  }
};

struct ShardCopies {
  ShardKey key;
  Range elements;
  ServerRef primary;
  Term term;
  std::vector<ReplicaCopy> replicas;  // Ordered by name.
  bool lost = false;
  Instant fenced_at;  // The primary is dead and answers no reads from then on.
  // Other servers whose logs hold the whole shard, until the primary is known to have begun its
  // own.
  std::vector<NodeId> logs;
  // The incarnations of the servers that held the whole shard when it was lost, until the same
  // time. A log of an earlier incarnation is on an older disk.
  std::map<NodeId, Incarnation> writers;
  NodeId move_to;  // It becomes primary once it is filled. Empty: none.
  // The first table that announces the handover to another server. 0: none does.
  Generation moves_from;
  NodeId avoid;  // The server that did not answer the last time. Empty: none.
  // Live servers whose copy left the table, and when: a new copy there must not be mistaken for the
  // old one.
  std::map<NodeId, Generation> left;

  ReplicaCopy* FindReplica(const NodeId& node);  // Null: it has none.
  bool HasCopyOn(const NodeId& node) const;
  bool HasLeavingReplica() const;
  // It was lost, and its new primary is not known to have begun its log.
  bool awaits_log() const { return !writers.empty(); }
  void AddReplica(const ReplicaCopy& copy);
  // Returns the servers that held the whole shard last: the primary, the replicas, then `logs`.
  std::vector<NodeId> Holders() const;
  // The log is of a disk that the server had before the one on which it held all of the shard.
  bool IsOfOlderDisk(const NodeId& node, const JobServers::LogEnd& log) const;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(key, elements, primary, term, replicas, lost, fenced_at, logs, writers, move_to,
            moves_from, avoid, left);
  }
};

// Writes the routing table of that generation into `routing`, except the job's name.
void RenderRouting(const std::vector<ShardCopies>& shards, Generation generation, Routing* routing);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SHARDS_SHARD_COPIES_H_
