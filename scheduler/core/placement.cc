#include "scheduler/core/placement.h"

#include <algorithm>
#include <utility>

namespace capstan::scheduler {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Chooses the servers for the replicas of one shard. `copies` counts the copies on each server.
void PlaceReplicas(int replicas, std::vector<int>& copies, ShardRoute& route) {
  for (int i = 0; i < replicas; ++i) {
    int best = -1;
    for (int server = 0; server < static_cast<int>(copies.size()); ++server) {
      const bool taken = server == route.server ||
                         std::any_of(route.replicas.begin(), route.replicas.end(),
                                     [=](const ReplicaRef& r) { return r.server == server; });
      if (taken) continue;
      if (best < 0 || copies[static_cast<size_t>(server)] < copies[static_cast<size_t>(best)]) {
        best = server;
      }
    }
    ++copies[static_cast<size_t>(best)];
    route.replicas.push_back({.server = best, .in_sync = false});
  }
  std::sort(route.replicas.begin(), route.replicas.end(),
            [](const ReplicaRef& a, const ReplicaRef& b) { return a.server < b.server; });
}

std::vector<Range> Buckets(int64_t count) {
  std::vector<Range> buckets;
  for (int64_t bucket = 0; bucket < count; ++bucket) buckets.push_back({bucket, bucket + 1});
  return buckets;
}

// Returns the size of a table's shards.
int64_t ShardSize(int64_t elements, int servers) {
  const int64_t wanted = std::clamp(CeilDivide(elements, servers * kShardsPerServer),
                                    kShardElementsMin, kShardElementsMax);
  const int64_t needed = CeilDivide(elements, wanted);
  const int64_t count = CeilDivide(needed, servers) * servers;
  return CeilDivide(CeilDivide(elements, count), kShardAlignment) * kShardAlignment;
}

// Joins neighbouring tensors to shards of at most `size`, unless one alone is larger.
std::vector<Range> WholeTensors(const std::vector<int64_t>& ends, int64_t size) {
  std::vector<Range> shards;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const bool fits = !shards.empty() && end - shards.back().begin <= size;
    if (fits) {
      shards.back().end = end;
    } else {
      shards.push_back({begin, end});
    }
    begin = end;
  }
  return shards;
}

}  // namespace

std::vector<Range> CutTable(const TableSize& table, int servers) {
  if (table.elements == 0) return {};
  if (table.sparse) return Buckets(table.elements);
  const int64_t size = ShardSize(table.elements, servers);
  if (!table.tensor_ends.empty()) return WholeTensors(table.tensor_ends, size);
  std::vector<Range> shards;
  for (int64_t begin = 0; begin < table.elements; begin += size) {
    shards.push_back({begin, std::min(begin + size, table.elements)});
  }
  return shards;
}

std::vector<ShardRange> CutTables(absl::Span<const TableSize> tables, int servers) {
  std::vector<ShardRange> shards;
  for (size_t table = 0; table < tables.size(); ++table) {
    const std::vector<Range> ranges = CutTable(tables[table], servers);
    for (size_t shard = 0; shard < ranges.size(); ++shard) {
      shards.push_back(
          {{TableId(static_cast<int32_t>(table)), ShardId(static_cast<int32_t>(shard))},
           ranges[shard]});
    }
  }
  return shards;
}

Routing PlaceShards(const JobId& job, Generation generation, absl::Span<const TableSize> tables,
                    std::vector<ServerRef> servers, int replicas) {
  const int count = static_cast<int>(servers.size());
  return PlaceRanges(job, generation, CutTables(tables, count), std::move(servers), replicas);
}

Routing PlaceRanges(const JobId& job, Generation generation, absl::Span<const ShardRange> shards,
                    std::vector<ServerRef> servers, int replicas) {
  Routing routing{
      .job = job, .generation = generation, .shards = {}, .servers = std::move(servers)};
  for (const ShardRange& shard : shards) {
    routing.shards.push_back({.key = shard.key,
                              .elements = shard.elements,
                              .server = 0,
                              .term = Term(generation.value()),
                              .replicas = {}});
  }
  std::vector<ShardRoute*> by_size;
  for (ShardRoute& route : routing.shards) by_size.push_back(&route);
  std::stable_sort(by_size.begin(), by_size.end(), [](const ShardRoute* a, const ShardRoute* b) {
    return a->elements.size() > b->elements.size();
  });
  std::vector<int64_t> load(routing.servers.size(), 0);
  for (ShardRoute* route : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += PlacementWeight(route->elements);
    route->server = static_cast<int>(least - load.begin());
  }
  std::vector<int> copies(routing.servers.size(), 0);
  for (const ShardRoute& route : routing.shards) ++copies[static_cast<size_t>(route.server)];
  for (ShardRoute& route : routing.shards) PlaceReplicas(replicas, copies, route);
  return routing;
}

}  // namespace capstan::scheduler
