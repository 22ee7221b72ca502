// JobRouting: derives from the routing tables of one job what one server has to do: which shards it
// must make, and from which source, which it holds as primary or as replica, and what it may answer
// as a primary.
//
// The scheduler sends whole tables, and a new one reaches each server at a different time. So a
// table counts only if its generation is higher than that of the last one, and shards that no
// longer name the server are dropped. Without a restore order, a primary makes initial values only
// in its job's first term; in later terms values come from a copy, a checkpoint or a log.
//
// Called by JobAssignment when a table or a read lease arrives, and by calls, which compare
// generations and timelines with it.
// Pure: no clock, threads, sockets or logging.
// Thread safety: thread-compatible; the mutex of JobState guards it.
// Invariants: (1) generation() and the end of the read lease never decrease.
//             (2) timeline() changes only when a table is accepted.
#ifndef CAPSTAN_SERVER_CORE_REPLICATION_JOB_ROUTING_H_
#define CAPSTAN_SERVER_CORE_REPLICATION_JOB_ROUTING_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "server/core/replication/held_shard.h"
#include "server/core/replication/shard_primary.h"

namespace capstan::server {

// One shard of a routing table.
struct ShardRoute {
  HeldShard shard;
  Term term;                           // The primary's. 1 or more.
  std::optional<FollowerKey> primary;  // None: the table names no server that it lists.
  std::vector<FollowerRoute> replicas;
  bool hands_over = false;  // See RoleRoute, also for the next one.
  bool awaits_log = false;
};

struct RoutingTable {
  Generation generation;
  std::vector<ShardRoute> shards;
};

// A shard that a routing table gives to this server.
struct RoutedShard {
  HeldShard shard;
  RoleRoute role;
};

// The source of a shard for a primary that does not hold it; see v1::TableAssignment.
struct ShardSources {
  Term restore_term;  // 0: none. Shards of this term are made anew even where one is held.
  Term log_term;      // 0: none.
};

// A shard that must be made before a routing table can be accepted.
struct ShardOrder {
  enum class From { kInitialValues, kCheckpoint, kLog };
  HeldShard shard;
  From from = From::kInitialValues;
  Term term;  // The term in which it will be primary.
};

// How this server holds a shard now.
struct ShardState {
  bool is_held = false;
  bool is_primary = false;
  Term term;  // The one that the last routing table gave it.
};

class JobRouting {
 public:
  // `self`: this server, as routing tables name it.
  explicit JobRouting(FollowerKey self) : self_(std::move(self)) {}

  bool IsNewer(Generation table) const { return table > generation_; }

  // Returns which shards must be made before Take(table), in the order of the table.
  // Errors: kInternal  the table makes this server primary of a shard that it must hold already and
  //         does not: its values would be invented.
  absl::StatusOr<std::vector<ShardOrder>> MissingShards(
      const RoutingTable& table, const ShardSources& sources,
      const std::function<ShardState(const HeldShard&)>& state_of) const;

  // Accepts a newer table. Returns the shards that name this server, in the order of the table; the
  // server is to drop all others. `incarnation_floor`: the one of the job's membership.
  std::vector<RoutedShard> Take(const RoutingTable& table, Incarnation incarnation_floor);

  // Before `until` no other server is made primary of this one's shards. An earlier time is
  // ignored.
  void SetReadLease(Instant until);
  bool HasReadLease(Instant now) const { return now < read_lease_; }

  Generation generation() const { return generation_; }
  // Names a history of the shards' versions: the incarnation floor at the time when the last
  // routing table was accepted. It rises when the job goes back to a checkpoint and its shards are
  // restored.
  uint64_t timeline() const { return timeline_.value(); }

 private:
  const FollowerKey self_;
  Generation generation_;
  Incarnation timeline_;
  Instant read_lease_;
};

// Whether the table makes every shard of the job anew in that term, so that nothing of what a
// server holds of earlier terms is needed any more. False for term 0.
bool AllBeginAnew(const RoutingTable& table, Term term);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_REPLICATION_JOB_ROUTING_H_
