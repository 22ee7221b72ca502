// Placement: cuts a job's tables into shards and spreads them over servers.
//
// Deterministic: the same tables and servers give the same routing table.
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CORE_MESSAGES_PLACEMENT_H_
#define CAPSTAN_SCHEDULER_CORE_MESSAGES_PLACEMENT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "common/types/shard_size.h"
#include "scheduler/core/messages/loaded_check.h"

namespace capstan::scheduler {

// Shards are sized so that each server gets this many of a table, but from 256 KiB to 4 MiB each: a
// message carries one shard or more, and several in flight let sending, adding and answering
// overlap.
inline constexpr int64_t kShardsPerServer = 8;
inline constexpr int64_t kShardElementsMin = int64_t{1} << 16;
// Elements: one cache line of fp32. Shards that hold tensors whole begin where these do.
inline constexpr int64_t kShardAlignment = 16;

// The part of a job's table that placement needs.
struct TableSize {
  int64_t elements = 0;
  bool sparse = false;  // The elements are buckets, each a shard of its own.
  // Where its tensors end, in order, if no shard may cut one; the last is `elements`.
  std::vector<int64_t> tensor_ends;
  TableSize() = default;
  TableSize(int64_t elements_of_table, bool is_sparse = false)  // NOLINT: a number of elements.
      : elements(elements_of_table), sparse(is_sparse) {}
  friend bool operator==(const TableSize&, const TableSize&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(elements, sparse);
    archive.Appended(tensor_ends);
  }
};

struct ServerRef {
  NodeId node;
  std::string address;  // host:port
  Incarnation incarnation;
  friend bool operator==(const ServerRef&, const ServerRef&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(node, address, incarnation);
  }
};

struct ReplicaRef {
  int server = 0;  // Index in Routing::servers; never the primary's.
  // It holds whatever was acknowledged and may become primary. False: it is being filled.
  bool in_sync = false;
  friend bool operator==(const ReplicaRef&, const ReplicaRef&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(server, in_sync);
  }
};

struct ShardRoute {
  ShardKey key;
  Range elements;  // Elements of the table; common/types/shard_size.h has the limits.
  int server = 0;  // Index in Routing::servers: the primary.
  Term term{1};    // Generation that made it the primary.
  std::vector<ReplicaRef> replicas;
  // A replica in sync is about to become primary: the primary answers reads only once its replicas
  // have confirmed that it still is.
  bool hands_over = false;
  // The primary took over from its log, and the scheduler has not heard that it has begun a new
  // one: it acknowledges nothing.
  bool awaits_log = false;
  friend bool operator==(const ShardRoute&, const ShardRoute&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(key, elements, server, term, replicas, hands_over, awaits_log);
  }
};

// A shard, without its servers.
struct ShardRange {
  ShardKey key;
  Range elements;
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(key, elements);
  }
};

// Checks shards that were read from a disk or a server: sums of their sizes cannot overflow.
// Errors: kDataLoss  names a shard whose range is invalid or makes the sum too large.
absl::Status CheckShardRanges(absl::Span<const ShardRange> shards);

struct Routing;
// Checks a table that was read from a disk or a server: its indexes are valid, each copy of a shard
// is on a server of its own, and counters can still grow.
// Errors: kDataLoss  names the shard or the server, the value and what was expected.
absl::Status CheckRouting(const Routing& routing);

// A job's routing table: which server holds which shard.
struct Routing {
  JobId job;
  Generation generation;
  std::vector<ShardRoute> shards;  // Ordered by key.
  std::vector<ServerRef> servers;
  // True if the table lists an incarnation of that server.
  bool Names(const NodeId& server) const {
    return std::any_of(servers.begin(), servers.end(),
                       [&server](const ServerRef& ref) { return ref.node == server; });
  }
  friend bool operator==(const Routing&, const Routing&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(job, generation, shards, servers);
    CheckLoaded(archive, [this] { return CheckRouting(*this); });
  }
};

// Returns the weight of a shard when shards are distributed: its elements, but at least
// kShardElementsMin. A bucket has that weight, because the number of its rows is not known here.
inline int64_t PlacementWeight(const Range& elements) {
  return elements.size() > kShardElementsMin ? elements.size() : kShardElementsMin;
}

// Cuts [0, elements) of a dense table into contiguous shards of one size (the last may be smaller),
// a multiple of kShardAlignment and at most kShardElementsMax. Their number is a multiple of
// `servers` where the alignment allows, so that all servers get an equal share. With tensor_ends
// each shard has as many whole tensors as fit into that size, or one larger tensor. In a sparse
// table each bucket is a shard. Empty if elements is 0. REQUIRES: elements >= 0, servers >= 1.
std::vector<Range> CutTable(const TableSize& table, int servers);

// Gives every shard of every table, the largest first, a primary of term `generation`: the server
// with the fewest elements so far, by PlacementWeight (the first of several). Then gives each shard
// `replicas` replicas, to be filled, on the servers that hold the fewest copies.
// REQUIRES: servers.size() > replicas >= 0.
Routing PlaceShards(const JobId& job, Generation generation, absl::Span<const TableSize> tables,
                    std::vector<ServerRef> servers, int replicas = 0);

// Same as PlaceShards, for tables that are cut already: a checkpoint's. REQUIRES: `shards` are
// ordered by key.
Routing PlaceRanges(const JobId& job, Generation generation, absl::Span<const ShardRange> shards,
                    std::vector<ServerRef> servers, int replicas);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_MESSAGES_PLACEMENT_H_
