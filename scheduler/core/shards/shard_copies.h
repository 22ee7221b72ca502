// ShardCopies: the copies of one shard, its primary's and its replicas', and what is on its way.
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
  // A replica in sync that is to leave the table: the generation of the table by which the primary
  // must go first, so that it is known to live. 0: it stays.
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
  // Others whose logs hold all of it, until the primary is known to have begun its own.
  std::vector<NodeId> logs;
  // The incarnations of the servers that held the whole shard when it was lost, until the same
  // time. A log of an earlier incarnation is on an older disk.
  std::map<NodeId, Incarnation> writers;
  NodeId move_to;  // Is to become primary once it is filled. Empty: none.
  // The table that first said that the shard is handed over. 0: no other one is filled.
  Generation moves_from;
  NodeId avoid;  // Did not answer the last time. Empty: none.
  // Live servers whose copy left the table, and when: a new copy there must not be taken for the
  // old one.
  std::map<NodeId, Generation> left;

  ReplicaCopy* FindReplica(const NodeId& node);  // Null: it has none.
  bool HasCopyOn(const NodeId& node) const;
  bool HasLeavingReplica() const;
  // It was lost, and whoever took over is not known to have begun its log.
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

// The routing table of that generation; `routing` has the job's name, and gets the rest.
void RenderRouting(const std::vector<ShardCopies>& shards, Generation generation, Routing* routing);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SHARDS_SHARD_COPIES_H_
