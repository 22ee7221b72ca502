// ShardMap: where the shards of one job are, while servers die, join, drain and fill replicas.
//
// Facts come in; Settle draws their consequences and makes at most one new routing generation.
//
//   replica:  placed, being filled --FILLED--> in sync --the primary is dead--> primary (new term)
//                    \--UNREACHABLE, its server died or is drained: it leaves the table; in sync
//                       only once the primary has shown that it lives
//   primary:  serving --its server is drained, or has too many--> a replica elsewhere is filled
//             --> handing over: the primary answers no read without its replicas
//             --both have applied it--> the replica is primary by a new generation; the old one
//             leaves
//             serving --its server has too many, none could take a copy more--> a replica in sync
//             becomes primary, and the old one its replica in sync
//             serving --its server died--> waits until the dead one answers no reads any more -->
//             an in_sync replica is promoted; if none lives, the shard is lost at once
//   lost:     its route stays as it was, with its dead servers, so that one that comes back learns
//             that its log is needed --RecoverFromLog, PlaceAnew--> serving (new term)
//
// The shards are on the servers of the job, and on as many more as make `servers` (0: all). A
// server that is drained gets nothing new.
// Thread safety: thread-compatible.
// Invariants: (1) a shard has one primary; its term grows exactly when the primary changes.
//             (2) the copies of a shard are on different servers.
//             (3) a promoted server was in sync.
//             (4) a shard is lost exactly while its primary is dead and no in_sync replica lives.
//             (5) a live primary is replaced only once it has applied a table that announces the
//             handover, or it becomes a replica in sync. Not so in PlaceAnew, where tasks end.
//             (6) a primary that takes over from its log acknowledges nothing before a table says
//             that it has begun a new log: until then the logs of all former holders are complete.
#ifndef CAPSTAN_SCHEDULER_CORE_SHARDS_SHARD_MAP_H_
#define CAPSTAN_SCHEDULER_CORE_SHARDS_SHARD_MAP_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/shards/job_servers.h"
#include "scheduler/core/shards/shard_copies.h"

namespace capstan::scheduler {

class ShardMap {
 public:
  struct Options {
    int replicas = 0;     // Replicas of each shard, beside the primary.
    int servers = 0;      // Servers that hold the job; 0: all that are available.
    int filling_max = 4;  // Replicas that one server is being filled with at a time.
    int moves_max = 2;    // Primaries on their way to a server that has fewer.
    // The pause between two groups of `moves_max` primaries that change roles with a replica.
    absl::Duration swap_pause = absl::Seconds(1);
  };
  // A shard of which no in_sync copy lives.
  struct Lost {
    ShardKey key;
    std::vector<NodeId> holders;  // The last servers with all of it: the primary, then replicas.
  };

  // The servers of `routing` are alive and not drained.
  ShardMap(const Routing& routing, const Options& options);

  // ---- facts; what follows from them comes with the next Settle
  // A live server, of the job or not. REQUIRES: an earlier incarnation of that name has died.
  void SetServer(const ServerRef& server, bool draining);
  // Sets the content of a live server's logs, as JobServers::SetStored.
  void SetStored(const NodeId& server, absl::Span<const StoredShard> stored,
                 const std::string& unique_id = "");
  // Its shards get another primary from `fenced_at` on, when it answers no reads any more.
  void ServerDied(const NodeId& server, Instant fenced_at);
  // A live server holds nothing of this job any more, nor can it: to the job it is dead until its
  // next incarnation.
  void ServerFailed(const NodeId& server, Instant now);
  // Live servers that tasks cannot reach: their shards move away, as if they were drained, while
  // there is another server. Not durable.
  void SetAvoided(const std::set<NodeId>& servers);
  // Accepts a live server's report on the job's tables. A report about a replica counts only if it
  // comes from the shard's primary, has its term, names the replica's incarnation, and was made
  // when the primary knew the replica.
  void OnTableReport(const NodeId& server, const TableReport& report);
  // A live server has applied the table of that generation. If it is primary of a shard that it had
  // to read from its log, it has read it.
  void NoteApplied(const NodeId& server, Generation table);

  // Draws the consequences. True: the routing table is a new one.
  bool Settle(Instant now);
  Instant NextDeadline()
      const;  // When Settle is due; InfiniteFuture if nothing waits for the time.

  // Adopts a job of another cluster: no server of the table lives here, and new generations and
  // terms are above all that may have been given out since its record. The next Settle marks all
  // shards as lost.
  void Adopt(Instant now);

  // ---- lost shards
  std::vector<Lost> LostShards() const;
  bool has_lost() const { return has_lost_; }
  std::vector<Lost> WithoutLog() const;  // The lost shards for which no server has come back.
  // Gives every lost shard to a server that came back with its log: among the last holders, the one
  // whose log reaches furthest. All or nothing. True: done, and the next Settle makes the table.
  bool RecoverFromLog(Instant now);
  // Places every shard, lost or not, on the available servers, to be read from a checkpoint or to
  // begin with its initial values.
  // False: no server lives that is not drained.
  bool PlaceAnew();
  // The source of the primaries' shards: the terms of the last RecoverFromLog and PlaceAnew.
  RestoreSource source() const {
    return {.restore_term = restore_term_, .restore_folder = "", .log_term = log_term_};
  }

  // ---- views
  const Routing& routing() const { return routing_; }
  // When the job was taken up from another cluster; 0: never.
  Generation adopted_at() const { return adopted_at_; }
  int CopiesOn(const NodeId& server) const;  // Primaries and replicas of its present incarnation.
  const JobServers& servers() const { return servers_; }
  // The server is one of the last holders of a lost shard, or the dead primary of a shard that may
  // be lost: its log may be all that is left of the shard.
  bool NeedsLogOf(const NodeId& server) const;
  // The servers that are primaries now, alive, with the generation that made them so.
  std::map<NodeId, Generation> Primaries() const;
  // Every shard has all the copies that it is to have, in sync, and nothing is on its way.
  bool complete() const;

  // ---- durable state, beside the routing table
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(shards_, servers_, generation_, adopted_at_, log_term_, restore_term_);
    CheckLoaded(archive, [this] { return Check(); });
    if constexpr (Archive::is_loading::value) settled_ = false;
  }

 private:
  using Server = JobServers::Server;
  // Errors: kDataLoss  the shards are not those of the table, or have two copies on a server.
  absl::Status Check() const;
  struct Load {
    int copies = 0;
    int primaries = 0;
    int filling = 0;
    int64_t elements = 0;  // Elements of primaries. A moving primary counts at its target.
  };

  Generation Next() const {
    return generation_.Next();
  }  // The generation of the table in the making.
  bool Lives(const ServerRef& server) const { return servers_.Lives(server); }
  bool IsServed(const ShardCopies& shard) const { return !shard.lost && Lives(shard.primary); }
  ShardCopies* Find(const ShardKey& key);
  enum class Count { kAll, kInSync };
  int GoodReplicas(const ShardCopies& shard, Count count) const;  // On good servers.
  int Wanted(const ShardCopies& shard) const;  // Replicas on good servers, one more while it moves.
  int Possible(const ShardCopies& shard) const;  // Good servers that could hold a replica.
  void CountLoads();

  void ChooseGood();
  void BuryDead(ShardCopies& shard, Instant now);
  NodeId BestReplica(const ShardCopies& shard) const;  // One in sync and alive; empty: none.
  void Promote(ShardCopies& shard, const NodeId& node);
  void DropReplica(ShardCopies& shard, const NodeId& node);
  void LetGo(ShardCopies& shard, ReplicaCopy& copy);  // Drops it, if it may leave already.
  void HandOver(ShardCopies& shard);
  // The server that is filled and takes over from a primary that lives. Empty: none yet.
  NodeId NextPrimary(ShardCopies& shard);
  void MovePrimary(ShardCopies& shard, const NodeId& to);  // Once both have applied `moves_from`.
  void KeepPrimary(ShardCopies& shard);                    // No server takes over.
  void Trim(ShardCopies& shard);
  void PlanMoves(Instant now);
  // Null: none.
  ShardCopies* ChooseToMove(const NodeId& from, const NodeId& to, int64_t spread);
  void SwapPrimary(ShardCopies& shard,
                   const NodeId& to);  // REQUIRES: `to` holds a replica in sync.
  void PlaceMissing();
  bool PlaceOne(ShardCopies& shard);  // False: no server can take one now.
  void AddReplica(ShardCopies& shard, const ReplicaCopy& copy);
  // The server has begun the logs of its shards, as of the table that it has applied.
  void NoteLogsBegun(const ServerRef& server, Generation applied);
  void TakeReplicaReport(const Server& server, Generation applied, const ReplicaReport& report);
  const Server* LogHolder(const ShardCopies& shard) const;  // Null: none has come back.
  void TakeFromLog(ShardCopies& shard);

  const Options options_;
  std::vector<ShardCopies> shards_;  // Ordered by key.
  JobServers servers_;
  Generation adopted_at_;
  Generation generation_;  // At least the table's, and at least every term given out.
  Term log_term_;
  Term restore_term_;
  std::map<NodeId, Load> loads_;  // While Settle runs.
  bool settled_ = false;          // No fact came since the last Settle.
  bool has_lost_ = false;         // Set by the last Settle.
  bool changed_ = false;          // The table changed since routing_ was made.
  Instant deadline_ = Instant::InfiniteFuture();
  Instant swaps_from_;  // No swap before then. Not durable.
  Routing routing_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SHARDS_SHARD_MAP_H_
