#include "scheduler/core/messages/placement.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

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

absl::Status CheckServerOf(const ShardRoute& route, int server, size_t servers) {
  if (server >= 0 && static_cast<size_t>(server) < servers) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(NameOf(route.key), ": server ", server, ", expected an index below ", servers));
}

absl::Status CheckCopies(const ShardRoute& route, size_t servers) {
  absl::Status status = CheckServerOf(route, route.server, servers);
  std::vector<int> taken = {route.server};
  for (const ReplicaRef& replica : route.replicas) {
    status.Update(CheckServerOf(route, replica.server, servers));
    taken.push_back(replica.server);
  }
  std::sort(taken.begin(), taken.end());
  const auto twice = std::adjacent_find(taken.begin(), taken.end());
  if (twice == taken.end()) return status;
  status.Update(absl::DataLossError(
      absl::StrCat(NameOf(route.key), ": server ", *twice, " has two copies, expected one")));
  return status;
}

}  // namespace

absl::Status CheckShardRanges(absl::Span<const ShardRange> shards) {
  int64_t rest = kCounterMax;  // Limit for the sum of the remaining weights.
  for (const ShardRange& shard : shards) {
    const Range& elements = shard.elements;
    const bool is_range = elements.begin >= 0 && elements.begin <= elements.end;
    if (!is_range || PlacementWeight(elements) > rest) {
      return absl::DataLossError(absl::StrCat(NameOf(shard.key), ": elements [", elements.begin,
                                              ", ", elements.end, "), expected a range of at most ",
                                              rest));
    }
    rest -= PlacementWeight(elements);
  }
  return absl::OkStatus();
}

absl::Status CheckRouting(const Routing& routing) {
  absl::Status status = CheckCount("generation", routing.generation.value());
  std::vector<ShardRange> ranges;
  for (const ShardRoute& route : routing.shards) {
    ranges.push_back({route.key, route.elements});
    status.Update(CheckCount("term", route.term.value()));
    status.Update(CheckCopies(route, routing.servers.size()));
  }
  for (const ServerRef& server : routing.servers) {
    status.Update(CheckCount("incarnation of a server", server.incarnation.value()));
  }
  status.Update(CheckShardRanges(ranges));
  return status;
}

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
